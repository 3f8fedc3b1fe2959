"""Array intake: what users pass becomes a floating-point array or a refusal, and nothing compiles on the way."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import get_opaque_trace_state
from jaxtyping import Array

from measureformer.errors import DtypeError, NotFiniteError, OptionError, ShapeError

Tree = TypeVar("Tree")


def is_traced(*trees: Any) -> bool:
    """Whether any array in these trees is a tracer: inside jit, grad, vmap, scan."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))


def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function that runs in a thread of its own, where nothing is being traced."""
    with ThreadPoolExecutor(1) as clean:
        return clean.submit(function, *arguments).result()


_UNTRACED = elsewhere(get_opaque_trace_state)


def untraced() -> bool:
    """Whether nothing is being traced here: not even a function that these arrays have nothing to do with."""
    return get_opaque_trace_state() == _UNTRACED


def is_spread(*trees: Any) -> bool:
    """Whether any concrete array in these trees lies in pieces on several devices, here or on other machines."""
    return any(not array.is_fully_replicated for array in _on_devices(trees))


def is_elsewhere(*trees: Any) -> bool:
    """Whether pieces of any concrete array lie on other machines."""
    return any(not (array.is_fully_addressable or array.is_fully_replicated) for array in _on_devices(trees))


def _on_devices(trees: Any) -> list[jax.Array]:
    leaves = jax.tree.leaves(trees)
    return [leaf for leaf in leaves if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)]


def needs_jax(*trees: Any) -> bool:
    """Whether NumPy cannot have these: tracers have no values, and pieces must not be pulled to one machine."""
    if len(trees) == 1 and type(trees[0]) is np.ndarray:
        return False
    return any(
        isinstance(leaf, Tracer) or not leaf.is_fully_replicated
        for leaf in jax.tree.leaves(trees)
        if isinstance(leaf, jax.Array)
    )


def namespace(*trees: Any) -> types.ModuleType:
    """NumPy for concrete arrays, `jax.numpy` under a trace and for arrays in pieces.

    Small reductions on arrays of the user's size are done in NumPy: in eager `jax.numpy` every new size would compile.
    """
    return jnp if needs_jax(*trees) else np


def host(array: Any) -> Any:
    """A concrete array as NumPy; a tracer, or an array in pieces, as it is."""
    return array if needs_jax(array) else np.asarray(array)


def floats(value: Any, name: str) -> Any:
    """`value` as a floating-point array: lists and integers become the default float, half precision becomes float32.

    A tracer stays one, a list that holds tracers becomes one, and a JAX array of such a type stays as it is; everything
    else is a NumPy array, so that no device operation is needed yet.
    """
    default, given = default_float(), value
    if type(value) is np.ndarray and value.dtype == default:
        return value
    if isinstance(value, (list, tuple)) and is_traced(value):
        value = jnp.asarray(value)
    if not isinstance(value, (jax.Array, np.ndarray)):
        value = _read(value, name)
    if isinstance(value, np.ma.MaskedArray):
        value = _unmasked(value, name)
    dtype = value.dtype
    if jnp.issubdtype(dtype, jnp.floating):
        wanted = np.dtype(np.float32) if dtype.itemsize < 4 else np.dtype(dtype).newbyteorder("=")
        # without 64-bit support JAX would round silently at the next operation: do it here, once
        wanted = min(wanted, default, key=lambda kind: kind.itemsize)
    elif jnp.issubdtype(dtype, jnp.integer) or jnp.issubdtype(dtype, jnp.bool_):
        wanted = default
    else:
        single = value.ndim == 0 and value is not given
        raise DtypeError(
            got=shown(given, name) if single else f"{name} of dtype {dtype}",
            need="real numbers",
            do=f"Pass a list, NumPy array or JAX array of floats or integers as {name}.",
        )
    if value.dtype == wanted:
        return value
    # eager JAX would compile the conversion for every new shape
    return host(value).astype(wanted)


def shown(value: Any, name: str) -> str:
    """What was received, in a few words: long numbers and objects are not written out."""
    kind = type(value).__name__
    if isinstance(value, int) and abs(value) >= 10**30:
        return f"{name} of {value.bit_length()} bits"
    if isinstance(value, (bool, int, float, complex, str, np.generic, types.NoneType)):
        return f"{name} = {str(value)[:40] if not isinstance(value, str) else repr(value[:40])} of type {kind}"
    return f"{name} of type {kind}"


def _unmasked(value: Any, name: str) -> np.ndarray:
    if np.ma.is_masked(value):
        raise DtypeError(
            got=f"{name} with {int(np.ma.count_masked(value))} masked entries",
            need="numbers without a mask",
            do=f"Leave these entries out, or pass {name}.filled(0), say.",
        )
    return np.asarray(value)


def _read(value: Any, name: str) -> Any:
    """What is not an array of NumPy or JAX as one: lists, numbers, and whatever offers `__array__` or `__dlpack__`."""
    offered = [way for way in ("__array__", "__dlpack__") if hasattr(value, way)]
    try:
        return np.from_dlpack(value) if offered == ["__dlpack__"] else np.asarray(value)
    except ValueError:
        raise ShapeError(
            got=f"{name} that is a ragged nested sequence",
            need="rows of equal length",
            do="Pad the rows or pass an array.",
        ) from None
    except (TypeError, RuntimeError, BufferError) as error:
        try:
            # half precision that NumPy does not know
            return jax.dlpack.from_dlpack(value)
        except Exception:
            raise DtypeError(
                got=f"{name} of type {type(value).__name__} that cannot be read ({error})",
                need="real numbers in the memory of this machine, without a graph of derivatives",
                do=f"Pass {name}.detach().cpu(), say, or a NumPy array.",
            ) from error


def default_float() -> np.dtype[Any]:
    """float64, or float32 where 64-bit support is switched off."""
    return _DOUBLE if jax.config.jax_enable_x64 else _SINGLE  # pyright: ignore[reportAttributeAccessIssue]


_DOUBLE, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)


def positive_int(value: Any, name: str) -> int:
    """Refuse a number of things that is not a whole number ≥ 1."""
    return at_least(value, name, 1)


def at_least(value: Any, name: str, least: int) -> int:
    """Refuse what is not a whole number, or less than the least."""
    try:
        number = operator.index(value)
    except TypeError:
        raise DtypeError(
            got=f"{name} = {value!r} of type {type(value).__name__}",
            need="a whole number",
            do=f"Pass {name} as an int.",
        ) from None
    if number < least:
        raise OptionError(got=f"{name} = {number}", need=f"at least {least}", do=f"Pass {name} ≥ {least}.")
    return number


def finite(value: Any, name: str) -> None:
    """Refuse NaN and infinity in a concrete array; tracers are not looked at."""
    if isinstance(value, Tracer) or (not needs_jax(value) and np.isfinite(value).all()):
        return
    bad = ~namespace(value).isfinite(host(value))
    if bad.any() and value.ndim == 0:
        raise NotFiniteError(got=f"{name} = {value}", need="a finite number", do=f"Pass a finite {name}.")
    if bad.any():
        where = first_index(bad)
        raise NotFiniteError(
            got=f"{name} with {int(bad.sum())} non-finite entries, the first at index {where}",
            need="finite numbers",
            do="Remove or replace these entries; a token that should have no influence gets weight 0.",
        )


def first_index(mask: Any) -> tuple[int, ...]:
    """Where a concrete mask is true for the first time, in the order of its entries."""
    return tuple(int(i) for i in np.unravel_index(int(mask.reshape(-1).argmax()), mask.shape))


def shaped(value: Any, name: str, axes: str) -> Any:
    """Refuse an array whose number of axes is not that of `axes`, e.g. "n d"."""
    wanted = len(axes.split())
    if value.ndim != wanted:
        do = "Tokens are rows: reshape the array."
        if np.ndim(value) > wanted:
            do = "Take one of them with array[0], or jax.vmap over the first axis."
        elif axes == "n d" and np.ndim(value) == 1:
            do = "Tokens are rows: array[:, None] makes n tokens on the line, array[None] one token in R^n."
        raise ShapeError(
            got=f"{name} of shape {np.shape(value)}", need=f"{wanted} axes, ({', '.join(axes.split())})", do=do
        )
    return value


def owned(value: Any) -> Array:
    """A JAX array of the user's numbers that a later write into the user's array cannot change."""
    return value if isinstance(value, jax.Array) else on_device(np.array(value))


def on_device(value: Any) -> Array:
    """A NumPy array handed to JAX; tracers and JAX arrays pass through. (`jnp.asarray` compiles for each shape.)"""
    if isinstance(value, jax.Array):
        return value
    if type(value) is np.ndarray and (to := _quick_device()) is not None and untraced():
        return to(value)
    # inside somebody's jit, what is concrete stays concrete: a measure that the function closes over
    with jax.ensure_compile_time_eval():
        return jax.device_put(value)


def all_on_device(values: list[np.ndarray]) -> list[Array]:
    """Several NumPy arrays handed to JAX; whether there is a quick way is asked once."""
    to = (_quick_device() if untraced() else None) or on_device
    return [to(value) for value in values]


def _quick_device() -> Callable[[np.ndarray], Array] | None:
    """What `jax.device_put` comes down to for an array that goes to the only place it can go, in a quarter of the time.

    None where there is a choice, or nothing is known of the way: then `device_put` decides.
    """
    config: Any = jax.config
    return _to_cpu() if config.jax_enable_x64 and config.jax_default_device is None else None


@cache
def _to_cpu() -> Callable[[np.ndarray], Array] | None:
    device = jax.local_devices()[0]
    try:
        from jax._src.core import ShapedArray
        from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]

        place, batched = jax.sharding.SingleDeviceSharding(device), xla_client.batched_device_put
        shaped_as = lru_cache(maxsize=1024)(ShapedArray)
    except (ImportError, AttributeError):
        return None  # internals that another release may name differently

    def put(value: np.ndarray) -> Array:
        return batched(shaped_as(value.shape, value.dtype), place, [value], [device], False)

    return put if device.platform == "cpu" else None


def at_once(program: Callable[..., Any], *arguments: Any) -> Any:
    """The program on concrete arguments, computed now even inside somebody's jit, not staged into their program.

    In a thread of its own, whose trace is empty: what Equinox and diffrax check at run time goes wrong when it is
    traced under `jax.ensure_compile_time_eval`.
    """
    return program(*arguments) if untraced() else elsewhere(program, *arguments)


def common_dtype(*trees: Any) -> np.dtype[Any]:
    """The floating-point type in which objects meet: float64 as soon as one of them has it. Scalars do not vote."""
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(trees) if is_floating(leaf) and leaf.ndim > 0]
    return np.result_type(*dtypes) if dtypes else np.dtype(np.float64)


def cast(tree: Tree, dtype: Any) -> Tree:
    """The same tree with every floating-point array in `dtype`; NumPy arrays stay NumPy arrays."""
    return jax.tree.map(lambda leaf: _cast_leaf(leaf, dtype), tree)


def _cast_leaf(leaf: Any, dtype: Any) -> Any:
    if not is_floating(leaf) or leaf.dtype == dtype:
        return leaf
    if isinstance(leaf, np.ndarray) or needs_jax(leaf):
        return leaf.astype(dtype)
    return on_device(np.asarray(leaf).astype(dtype))


def is_floating(leaf: Any) -> bool:
    """Whether this is an array of real numbers."""
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic)) and jnp.issubdtype(leaf.dtype, jnp.floating)


def scalar(value: Any, name: str) -> Array:
    """One finite number as a JAX array: a plain Python float in a map would be compiled into its program."""
    number = floats(value, name)
    if number.ndim != 0:
        raise ShapeError(got=f"{name} of shape {number.shape}", need="one number", do=f"Pass {name} as a float.")
    finite(number, name)
    return owned(number)


def prng_key(key: Any) -> Array:
    """Refuse anything but a JAX random key, with a hint for those who pass a seed."""
    is_array = isinstance(key, jax.Array)
    typed = is_array and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ()
    if typed or (is_array and key.dtype == np.uint32 and key.shape == (2,)):
        return key
    raise DtypeError(
        got=f"key = {str(key)[:40]} of type {type(key).__name__}",
        need="one JAX random key",
        do="Pass jax.random.key(seed); nothing here draws from a hidden generator.",
    )
