"""Tiny random models of the reference implementation, with all their hidden states.

`python tests/lens_reference.py write` makes the fixtures that the tests read, and needs torch and transformers;
`python tests/lens_reference.py compare --seed 1` draws other models and compares them with the lens at once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FIXTURES = Path(__file__).parent / "lens" / "fixtures"
TOLERANCE = 1e-5
TOKENS = 11

_SMALL = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
_ENCODER = {**_SMALL, "intermediate_size": 24, "max_position_embeddings": 26}
_DECODER = {**_SMALL, "intermediate_size": 24, "max_position_embeddings": 64, "num_key_value_heads": 2}
_STRETCHED = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 24}),
    "bert": ("bert", _ENCODER),
    "roberta": ("roberta", {**_ENCODER, "pad_token_id": 1}),
    "distilbert": (
        "distilbert",
        {"vocab_size": 40, "dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 24, "max_position_embeddings": 26},
    ),
    "albert": ("albert", {**_ENCODER, "embedding_size": 8, "num_hidden_layers": 3}),
    "albert-groups": (
        "albert",
        {**_ENCODER, "embedding_size": 8, "num_hidden_layers": 4, "num_hidden_groups": 2, "hidden_act": "gelu"},
    ),
    "llama": ("llama", {**_DECODER, "tie_word_embeddings": True}),
    "llama3": ("llama", {**_DECODER, "head_dim": 8, "rope_parameters": _STRETCHED, "attention_bias": True}),
    "mistral": ("mistral", {**_DECODER, "sliding_window": 32}),
    "qwen2": ("qwen2", _DECODER),
    "tabpfn": ("tabpfn", {"nhead": 2}),
}
ENCODERS = ("bert", "roberta", "distilbert", "albert")


@dataclass(frozen=True)
class Drawn:
    """A model, an input, and what the reference makes of it."""

    config: dict[str, Any]
    weights: dict[str, np.ndarray]
    given: dict[str, np.ndarray]
    """`ids`, or the parts of a table."""
    hidden: np.ndarray
    """(layers + 1, n, d); the last one after the model's last normalisation."""
    logits: np.ndarray


def draw(name: str, seed: int) -> Drawn:
    """A random model of the family, by torch and transformers."""
    import torch

    torch.manual_seed(seed)
    return _tabpfn(torch) if name == "tabpfn" else _text_model(torch, *FAMILIES[name])


def _text_model(torch: Any, family: str, settings: dict[str, Any]) -> Drawn:
    import transformers

    config = transformers.AutoConfig.for_model(family, **settings)
    kind = transformers.AutoModelForMaskedLM if family in ENCODERS else transformers.AutoModelForCausalLM
    model = kind.from_config(config, attn_implementation="eager").eval().float()
    _randomise(torch, model)
    ids = torch.randint(2, 40, (1, TOKENS))
    with torch.no_grad():
        out = model(input_ids=ids, output_hidden_states=True)
    with tempfile.TemporaryDirectory() as folder:
        # what users find on their disks
        model.save_pretrained(folder)
        from safetensors.numpy import load_file

        weights = load_file(Path(folder) / "model.safetensors")
        stored = json.loads((Path(folder) / "config.json").read_text())
    hidden = np.stack([layer[0].numpy() for layer in out.hidden_states])
    return Drawn(stored, weights, {"ids": ids[0].numpy()}, hidden, out.logits[0].numpy())


def _randomise(torch: Any, model: Any) -> None:
    """Every parameter at random, norms around 1: with the usual small weights much would go unnoticed."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if "norm" in name.lower() or ".ln_" in name else 0.0
            scale = 0.3 if parameter.ndim < 2 else 0.35
            parameter.copy_(
                (centre if name.endswith("weight") and parameter.ndim < 2 else 0.0)
                + scale * torch.randn_like(parameter)
            )


def _tabpfn(torch: Any) -> Drawn:
    """The architecture of TabPFN from torch's own encoder: rows to be predicted are masked as keys."""
    nn, dim, features, known, asked = torch.nn, 16, 6, 9, 4
    layer = nn.TransformerEncoderLayer(dim, 2, 24, dropout=0.0, activation="gelu", batch_first=True)
    parts = nn.ModuleDict(
        {
            "encoder": nn.Linear(features, dim),
            "y_encoder": nn.Linear(1, dim),
            "transformer_encoder": nn.TransformerEncoder(layer, 3, enable_nested_tensor=False),
            "decoder": nn.Sequential(nn.Linear(dim, 24), nn.GELU(), nn.Linear(24, 3)),
        }
    ).eval()
    _randomise(torch, parts)
    X, queries, y = torch.randn(known, 2), torch.randn(asked, 2), torch.randint(0, 3, (known,)).float()
    with torch.no_grad():
        rows = (torch.cat([X, queries]) - X.mean(0)) / (X.std(0, correction=0) + 1e-6) * (features / 2)
        tokens = parts["encoder"](nn.functional.pad(rows, (0, features - 2)))
        tokens[:known] += parts["y_encoder"](y[:, None])
        mask = torch.zeros(known + asked, known + asked, dtype=torch.bool)
        mask[:, known:] = True
        hidden = [tokens]
        for module in parts["transformer_encoder"].layers:
            hidden.append(module(hidden[-1][None], src_mask=mask)[0])
        logits = parts["decoder"](hidden[-1])
    weights = {name: value.numpy() for name, value in parts.state_dict().items()}
    given = {"X": X.numpy(), "y": y.numpy(), "queries": queries.numpy()}
    config = {"model_type": "tabpfn", "nhead": 2}
    return Drawn(config, weights, given, np.stack([h.numpy() for h in hidden]), logits.numpy())


def write(folder: Path = FIXTURES) -> None:
    """One safetensors file for each family."""
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    for name in FAMILIES:
        drawn = draw(name, seed=0)
        tensors = {f"weights/{key}": np.ascontiguousarray(value) for key, value in drawn.weights.items()}
        tensors |= {f"given/{key}": value for key, value in drawn.given.items()}
        tensors |= {"hidden": drawn.hidden, "logits": drawn.logits}
        config = {key: value for key, value in drawn.config.items() if key != "transformers_version"}
        save_file(tensors, folder / f"{name}.safetensors", {"config": json.dumps(config)})
        print(f"{name:14} {(folder / f'{name}.safetensors').stat().st_size:8} bytes")


def stored(name: str) -> Drawn:
    """A fixture."""
    from safetensors import safe_open

    with safe_open(FIXTURES / f"{name}.safetensors", framework="np") as file:
        config = json.loads(file.metadata()["config"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    parts: dict[str, dict[str, np.ndarray]] = {"weights": {}, "given": {}}
    for key, value in tensors.items():
        kind, _, rest = key.partition("/")
        if rest:
            parts[kind][rest] = value
    return Drawn(config, parts["weights"], parts["given"], tensors["hidden"], tensors["logits"])


def folder(path: Path, name: str, words: int = 40) -> Path:
    """A fixture as a folder on disk, with a tokenizer whose words are w0, w1, …"""
    import tokenizers
    from safetensors.numpy import save_file

    drawn = stored(name)
    save_file(drawn.weights, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(drawn.config))
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(words)}, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(path / "tokenizer.json"))
    return path


def as_gguf(path: Path, drawn: Drawn, **changes: Any) -> Path:
    """The LLaMA fixture as converters write it: neighbours turn together."""
    import gguf

    from measureformer.lens.families.gguf_names import LAYER

    writer = gguf.GGUFWriter(path, "llama")
    config = drawn.config
    writer.add_block_count(changes.get("depth", config["num_hidden_layers"]))
    writer.add_embedding_length(config["hidden_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(10_000.0)
    writer.add_context_length(64)
    if "words" in changes:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(changes["words"])
        writer.add_token_merges(changes["merges"])
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    for i in range(config["num_hidden_layers"]):
        names |= {f"model.layers.{i}.{new}.weight": f"blk.{i}.{old}.weight" for new, old in LAYER.items()}
    for name, old in names.items():
        array = drawn.weights[name]
        if ".q_proj." in name or ".k_proj." in name:
            heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
            array = array.reshape(heads, 2, array.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(old, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def deviations(drawn: Drawn) -> tuple[float, float]:
    """The largest difference between the lens and the reference, in hidden states and in logits."""
    import measureformer as mf

    model = mf.lens.load(drawn.weights, config=drawn.config)
    text = mf.lens.Table(**drawn.given) if "X" in drawn.given else drawn.given["ids"]
    trace = model.trace(text)
    states = [*trace.measures[:-1], trace.exit()]
    found = np.stack([np.asarray(mu.points) for mu in states])
    assert found.dtype == np.float32
    logits = np.asarray(model.logits(text))
    return float(np.abs(found - drawn.hidden).max()), float(np.abs(logits - drawn.logits).max())


def compare(seed: int) -> bool:
    """Draw new models and print how far the lens is from the reference."""
    good = True
    for name in FAMILIES:
        hidden, logits = deviations(draw(name, seed))
        good &= hidden <= TOLERANCE
        print(
            f"{name:14} hidden states {hidden:.1e}   logits {logits:.1e}{'' if hidden <= TOLERANCE else '   TOO FAR'}"
        )
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["write", "compare"])
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    if chosen.what == "write":
        write()
    elif not compare(chosen.seed):
        sys.exit(1)
