"""Array intake: what users pass becomes a floating-point array or a refusal, and nothing compiles on the way."""

from __future__ import annotations

import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from measureformer.errors import DtypeError, NotFiniteError, OptionError, ShapeError

Tree = TypeVar("Tree")


def is_traced(*trees: Any) -> bool:
    """Whether any array in these trees is a tracer: inside jit, grad, vmap, scan."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))


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
    return is_traced(*trees) or is_spread(*trees)


def namespace(*trees: Any) -> ModuleType:
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
    default = default_float()
    if isinstance(value, (list, tuple)) and is_traced(value):
        value = jnp.asarray(value)
    if isinstance(value, jax.Array):
        dtype = value.dtype
    else:
        try:
            value = np.asarray(value)
        except ValueError:
            raise ShapeError(
                got=f"{name} that is a ragged nested sequence",
                need="rows of equal length",
                do="Pad the rows or pass an array.",
            ) from None
        dtype = value.dtype
    if jnp.issubdtype(dtype, jnp.floating):
        wanted = np.dtype(np.float32) if dtype.itemsize < 4 else np.dtype(dtype).newbyteorder("=")
        # without 64-bit support JAX would round silently at the next operation: do it here, once
        wanted = min(wanted, default, key=lambda kind: kind.itemsize)
    elif jnp.issubdtype(dtype, jnp.integer) or jnp.issubdtype(dtype, jnp.bool_):
        wanted = default
    else:
        raise DtypeError(
            got=f"{name} of dtype {dtype}",
            need="real numbers",
            do=f"Pass a list, NumPy array or JAX array of floats or integers as {name}.",
        )
    if value.dtype == wanted:
        return value
    # eager JAX would compile the conversion for every new shape
    return host(value).astype(wanted)


def default_float() -> np.dtype[Any]:
    """float64, or float32 where 64-bit support is switched off."""
    return np.dtype(jax.dtypes.canonicalize_dtype(np.float64))


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
    if is_traced(value):
        return
    bad = ~namespace(value).isfinite(host(value))
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
    if np.ndim(value) != wanted:
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
    # inside somebody's jit, what is concrete stays concrete: a measure that the function closes over
    with jax.ensure_compile_time_eval():
        return jax.device_put(value)


def at_once(program: Callable[..., Any], *arguments: Any) -> Any:
    """The program on concrete arguments, computed now even inside somebody's jit, not staged into their program.

    In a thread of its own, whose trace is empty: what Equinox and diffrax check at run time goes wrong when it is
    traced under `jax.ensure_compile_time_eval`.
    """
    if not is_traced(jnp.zeros(())):
        return program(*arguments)
    with ThreadPoolExecutor(1) as clean:
        return clean.submit(program, *arguments).result()


def common_dtype(*trees: Any) -> np.dtype[Any]:
    """The floating-point type in which objects meet: float64 as soon as one of them has it. Scalars do not vote."""
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(trees) if _is_floating(leaf) and leaf.ndim > 0]
    return np.result_type(*dtypes) if dtypes else np.dtype(np.float64)


def cast(tree: Tree, dtype: Any) -> Tree:
    """The same tree with every floating-point array in `dtype`; NumPy arrays stay NumPy arrays."""
    return jax.tree.map(lambda leaf: _cast_leaf(leaf, dtype), tree)


def _cast_leaf(leaf: Any, dtype: Any) -> Any:
    if not _is_floating(leaf) or leaf.dtype == dtype:
        return leaf
    if isinstance(leaf, np.ndarray) or needs_jax(leaf):
        return leaf.astype(dtype)
    return on_device(np.asarray(leaf).astype(dtype))


def _is_floating(leaf: Any) -> bool:
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
