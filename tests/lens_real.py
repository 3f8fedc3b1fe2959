"""Hidden states of real pretrained models by the reference implementation, a few numbers of each layer.

`python tests/lens_real.py` writes them to a fixture, and needs torch, transformers and the weights of `make lens-data`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

FIXTURE = Path(__file__).parent / "lens" / "fixtures" / "real.safetensors"
TEXTS = {
    "minilm": "A cheetah chases prey across a field.",
    "smollm2": "The capital of France is",
    "albert": "CC(C)S.CN(C)C=O>>CC(C)Sc1ncccc1F",
}


def data() -> Path:
    """The folder that `make lens-data` filled."""
    return Path(os.environ.get("MEASUREFORMER_LENS_DATA", "lens-data"))


def some(hidden: np.ndarray) -> np.ndarray:
    """(layers + 1, 3, 8): first, middle and last token, and eight coordinates of each."""
    n, d = hidden.shape[1:]
    return hidden[:, [0, n // 2, n - 1]][:, :, np.arange(8) * (d // 8)]


def _text_model(name: str) -> dict[str, np.ndarray]:
    import tokenizers
    import torch
    import transformers

    folder = data() / name
    settings: dict[str, Any] = {"local_files_only": True, "attn_implementation": "eager"}
    if name == "smollm2":
        settings["gguf_file"] = "model.gguf"
        ids = transformers.AutoTokenizer.from_pretrained(folder, gguf_file="model.gguf").encode(TEXTS[name])
    else:
        made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        made.no_padding()
        ids = made.encode(TEXTS[name]).ids
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32, **settings).eval()
    with torch.inference_mode():
        states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    hidden = np.stack([state[0].numpy() for state in states])
    return {"ids": np.asarray(ids), "hidden": some(hidden), "sizes": np.abs(hidden).max(axis=(1, 2))}


def table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labelled rows of two features, and rows to be predicted."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2)).astype(np.float32)
    return X, (X[:, 0] > 0).astype(np.float32), rng.normal(size=(4, 2)).astype(np.float32)


def _tabpfn() -> dict[str, np.ndarray]:
    """The trained weights in torch's own encoder."""
    import torch
    from safetensors.torch import load_file

    weights = load_file(data() / "tabpfn" / "model.safetensors")
    dim, features = weights["encoder.weight"].shape
    inner = weights["transformer_encoder.layers.0.linear1.weight"].shape[0]
    depth = sum(name.endswith("in_proj_weight") for name in weights)
    layer = torch.nn.TransformerEncoderLayer(dim, 4, inner, dropout=0.0, activation="gelu", batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, depth, enable_nested_tensor=False).eval()
    prefix = "transformer_encoder."
    encoder.load_state_dict({k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)})
    X, y, queries = (torch.from_numpy(part) for part in table())
    known, total = len(X), len(X) + len(queries)
    with torch.inference_mode():
        rows = (torch.cat([X, queries]) - X.mean(0)) / (X.std(0, correction=0) + 1e-6) * (features / 2)
        rows = torch.nn.functional.pad(rows, (0, features - 2))
        tokens = rows @ weights["encoder.weight"].T + weights["encoder.bias"]
        tokens[:known] += y[:, None] @ weights["y_encoder.weight"].T + weights["y_encoder.bias"]
        mask = torch.zeros(total, total, dtype=torch.bool)
        mask[:, known:] = True
        states = [tokens]
        for module in encoder.layers:
            states.append(module(states[-1][None], src_mask=mask)[0])
    hidden = np.stack([state.numpy() for state in states])
    return {"hidden": some(hidden), "sizes": np.abs(hidden).max(axis=(1, 2))}


def main() -> None:
    from safetensors.numpy import save_file

    tensors: dict[str, np.ndarray] = {}
    for name in (*TEXTS, "tabpfn"):
        found = _tabpfn() if name == "tabpfn" else _text_model(name)
        tensors |= {f"{name}/{key}": np.ascontiguousarray(value) for key, value in found.items()}
        print(name, found["hidden"].shape)
    save_file(tensors, FIXTURE)


if __name__ == "__main__":
    main()
