"""A language model on disk, in the layout of GPT-2: config.json, model.safetensors, tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from measureformer.errors import MeasureformerError, OptionError
from measureformer.incontext.blocks import EPS, Blocks
from measureformer.incontext.language import LanguageModel
from measureformer.numerics.arrays import on_device
from measureformer.numerics.checked import checked
from measureformer.numerics.types import PathLike
from measureformer.storage.files import require_file, write_atomically
from measureformer.storage.folder import damaged, read_json, read_tensors
from measureformer.storage.safetensors import to_safetensors
from measureformer.text.tokens import Tokenizer
from measureformer.training.architecture import Architecture

_BLOCK = {
    "qkv": "attn.c_attn.weight",
    "qkv_bias": "attn.c_attn.bias",
    "out": "attn.c_proj.weight",
    "out_bias": "attn.c_proj.bias",
    "up": "mlp.c_fc.weight",
    "up_bias": "mlp.c_fc.bias",
    "down": "mlp.c_proj.weight",
    "down_bias": "mlp.c_proj.bias",
}
_NORMS = {"norm_1": "ln_1", "norm_2": "ln_2"}


class TextModel(NamedTuple):
    """A language model and its tokenizer.

    Arguments:
        model: the model.
        tokenizer: a tokenizer of as many tokens.

    >>> import jax, measureformer as mf
    >>> letters = mf.text.Tokenizer.characters("abc")
    >>> small = mf.Architecture(width=8, layers=1, heads=2)
    >>> net = mf.incontext.LanguageModel.random(jax.random.key(0), small, vocabulary=3, context=4)
    >>> TextModel(net, letters).tokenizer.size
    3
    """

    model: LanguageModel
    tokenizer: Tokenizer


def save_text(text_model: TextModel, folder: PathLike) -> None:
    """Save a model in the layout of GPT-2: config.json, model.safetensors, tokenizer.json.

    Arguments:
        text_model: the model and its tokenizer; GPT-2 has LayerNorm and branch 1, and others are refused.
        folder: where the files go.

    >>> import jax, tempfile, measureformer as mf
    >>> small = mf.Architecture(width=8, layers=1, heads=2)
    >>> net = mf.incontext.LanguageModel.random(jax.random.key(0), small, vocabulary=3, context=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_text(TextModel(net, mf.text.Tokenizer.characters("abc")), folder)
    ...     mf.text.load_text(folder).model.parameters == net.parameters
    True
    """
    model, folder = text_model.model, Path(folder)
    check_architecture(model.architecture)
    tensors = {name: np.asarray(value, order="C") for name, value in _tensors(model).items()}
    # some readers require this entry before they read the tensors
    write_atomically(folder / "model.safetensors", to_safetensors(tensors, {"format": "pt"}))
    write_atomically(folder / "tokenizer.json", text_model.tokenizer.description.encode())
    write_atomically(folder / "config.json", json.dumps(_config(model), indent=1).encode())


def check_architecture(architecture: Architecture) -> None:
    """Refuse an architecture that GPT-2 does not have."""
    if architecture.norm != "layer" or architecture.branch != 1:
        raise OptionError(
            got=f"norm = {architecture.norm!r}, branch = {architecture.branch}",
            need="LayerNorm and branch 1, as in GPT-2, to be saved",
            do="Leave both out of the architecture, or do not save.",
        )


@checked
def load_text(folder: PathLike) -> TextModel:
    """Load a model that `train_text(…, save=folder)` or `save_text` saved.

    Arguments:
        folder: the folder of the three files.

    >>> import measureformer as mf
    >>> mf.text.load_text("nowhere")
    Traceback (most recent call last):
    measureformer.errors.SavedRunError: got no training in nowhere; need a folder with config.json...
    """
    file = Path(folder) / "config.json"
    config = read_json(file)
    try:
        architecture = Architecture(config["n_embd"], config["n_layer"], config["n_head"], config.get("n_inner"))
        vocabulary, context = int(config["vocab_size"]), int(config["n_positions"])
        shell = jax.eval_shape(
            lambda: LanguageModel.random(jax.random.key(0), architecture, vocabulary=vocabulary, context=context)
        )
    except (ArithmeticError, KeyError, TypeError, ValueError, MeasureformerError) as error:
        raise damaged(file, f"is not the configuration of a GPT-2 ({error})") from error
    tensors, _ = read_tensors(file.with_name("model.safetensors"), jax.eval_shape(_tensors, shell))
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise damaged(file.with_name("model.safetensors"), f"has numbers in {name} that are not finite")
    model = _model(tensors, architecture)
    file = file.with_name("tokenizer.json")
    try:
        require_file(file)
        tokenizer = Tokenizer.from_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(file, f"is not a tokenizer ({error})") from error
    if tokenizer.size != vocabulary:
        raise damaged(file, f"has {tokenizer.size} tokens for a model of {vocabulary}")
    return TextModel(model, tokenizer)


def _config(model: LanguageModel) -> dict[str, Any]:
    a = model.architecture
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": a.width,
        "n_layer": a.layers,
        "n_head": a.heads,
        "n_inner": a.units,
        "n_positions": model.context,
        "vocab_size": model.vocabulary,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": EPS,
        "tie_word_embeddings": True,
        "scale_attn_weights": True,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _tensors(model: LanguageModel) -> dict[str, Any]:
    named = {"wte.weight": model.embedding, "wpe.weight": model.positions}
    named |= {"ln_f.weight": model.final_norm[0], "ln_f.bias": model.final_norm[1]}
    for layer in range(model.architecture.layers):
        for field, name in _BLOCK.items():
            named[f"h.{layer}.{name}"] = getattr(model.blocks, field)[layer]
        for field, name in _NORMS.items():
            gain, shift = getattr(model.blocks, field)[layer]
            named |= {f"h.{layer}.{name}.weight": gain, f"h.{layer}.{name}.bias": shift}
    return {f"transformer.{name}": value for name, value in named.items()}


def _model(tensors: dict[str, np.ndarray], a: Architecture) -> LanguageModel:
    # a file may hold half precision
    get = lambda name: np.asarray(tensors[f"transformer.{name}"], np.float32)  # noqa: E731
    each = lambda name: np.stack([get(f"h.{layer}.{name}") for layer in range(a.layers)])  # noqa: E731
    fields = {field: each(name) for field, name in _BLOCK.items()}
    fields |= {
        field: np.stack([each(f"{name}.weight"), each(f"{name}.bias")], axis=1) for field, name in _NORMS.items()
    }
    blocks = Blocks(**{field: on_device(value) for field, value in fields.items()})
    norm = jnp.stack([get("ln_f.weight"), get("ln_f.bias")])
    return LanguageModel(on_device(get("wte.weight")), on_device(get("wpe.weight")), blocks, norm, a)
