"""How far the lens is from the reference implementation, where that is installed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, cast

import numpy as np

from measureformer.lens.model import Model


def deviation(model: Model, tokens: np.ndarray) -> float | None:
    """The largest difference between the hidden states of the lens and of `transformers`, relative to their size.

    None if `transformers` and torch are not installed, or the model is no folder in their layout. Nothing is fetched.
    """
    folder = model.checkpoint.folder
    packages = ("torch", "transformers")
    if folder is None or any(importlib.util.find_spec(name) is None for name in packages):
        return None
    if not (folder / "config.json").is_file() or not (folder / "model.safetensors").is_file():
        return None
    torch, transformers = (cast(Any, importlib.import_module(name)) for name in packages)
    settings = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
    reference = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager", **settings).float().eval()
    with torch.inference_mode():
        states = reference(torch.from_numpy(tokens)[None], output_hidden_states=True).hidden_states
    trace = model.trace(tokens)
    ours = [*trace.measures[:-1], trace.exit()]
    pairs = zip(ours, states, strict=True)
    return max(_apart(np.asarray(mu.points, np.float64), state[0].numpy()) for mu, state in pairs)


def _apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1.0))
