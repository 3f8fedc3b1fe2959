"""How far the lens is from the reference implementation, where that is installed."""

from __future__ import annotations

import importlib
import importlib.util
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from measureformer.lens.checkpoint import Checkpoint
from measureformer.lens.model import Model

UNKNOWN = OSError, ValueError, KeyError, ImportError
"""What `transformers` raises for files, architectures, settings and formats that it does not know."""
_LONGEST = 160
"""Characters of what it says, of which there may be pages."""


def deviation(model: Model, tokens: np.ndarray) -> float | str:
    """The largest difference between the hidden states of the lens and of `transformers`, relative to their size.

    In words, why there is none: `transformers` and torch are not installed, or cannot open the model (GGUF needs
    `accelerate` too). Nothing is fetched.
    """
    # a checkpoint of another class, such as the shuffled one, is not what lies in the folder
    if type(model.checkpoint) is not Checkpoint or model.checkpoint.folder is None:
        return "the weights do not lie in a folder"
    packages = ("torch", "transformers")
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        return f"{' and '.join(missing)} not installed"
    torch, transformers = (cast(Any, importlib.import_module(name)) for name in packages)
    with _silent(transformers.utils.logging):
        reference = _opened(transformers, model.checkpoint, torch.float32)
    if isinstance(reference, str):
        return reference
    with torch.inference_mode():
        states = reference.eval()(torch.from_numpy(tokens)[None], output_hidden_states=True).hidden_states
    trace = model.trace(tokens)
    ours = [*trace.measures[:-1], trace.exit()]
    pairs = zip(ours, states, strict=True)
    return max(_apart(np.asarray(mu.points, np.float64), state[0].numpy()) for mu, state in pairs)


@contextmanager
def _silent(logging: Any) -> Generator[None]:
    """Without the bars and notices of `transformers`: the lens has its own bar, and says what it found."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _opened(transformers: Any, checkpoint: Checkpoint, dtype: Any) -> Any:
    """The model as the reference opens it; in words why, if it does not."""
    settings: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
    # at once: one that was quantised cannot be cast afterwards
    settings["dtype"] = dtype
    if checkpoint.source.endswith(".gguf"):
        settings["gguf_file"] = checkpoint.source
    try:
        return transformers.AutoModel.from_pretrained(checkpoint.folder, attn_implementation="eager", **settings)
    except UNKNOWN as error:
        # reports travel: they name the model, and not where it lies on this machine
        said = str(error).replace(str(checkpoint.folder), checkpoint.source)
        return f"transformers does not open it ({type(error).__name__}: {textwrap.shorten(said, _LONGEST)})"


def _apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1.0))
