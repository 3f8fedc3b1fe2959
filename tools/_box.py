"""Train the small text model that comes with the package, and put it into its box: `python tools/_box.py`.

Ten minutes on one core; the same command goes on where an earlier one ended. The text is Python's own documentation,
so that nothing is fetched, and the weights are stored in half precision, because every installation carries them.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import safetensors.numpy

import measureformer as mf
from measureformer.text.corpus import documentation

BOX = Path(__file__).parent.parent / "src" / "measureformer" / "lens" / "box"
LARGEST = 3_000_000


def main() -> None:
    save = Path(tempfile.gettempdir()) / "measureformer-box"
    found = mf.text.train_text(
        documentation(),
        jax.random.key(0),
        architecture=mf.Architecture(width=96, layers=5, heads=4),
        context=128,
        optimization=mf.Optimization(steps=1500, batch=12, rate=2e-3),
        save=save,
    )
    print(f"held-out perplexity {found.perplexity:.3f}; of a trigram model {found.trigram:.3f}")
    BOX.mkdir(exist_ok=True)
    tensors = safetensors.numpy.load_file(save / "model.safetensors")
    halves = {name: tensor.astype(np.float16) for name, tensor in tensors.items()}
    (BOX / "model.safetensors").write_bytes(safetensors.numpy.save(halves, {"format": "pt"}))
    for name in ("config.json", "tokenizer.json"):
        (BOX / name).write_bytes((save / name).read_bytes())
    (BOX / "README.md").write_text(
        "A GPT-2 that reads characters, made by `python tools/_box.py` from the documentation inside Python "
        f"{platform.python_version()}: {found.text_model.model.parameters} parameters, held-out perplexity "
        f"{found.perplexity:.2f}, of a trigram model {found.trigram:.2f}.\n",
        encoding="utf-8",
    )
    if (size := sum(path.stat().st_size for path in BOX.iterdir())) > LARGEST:
        sys.exit(f"measureformer: the box has {size} bytes, at most {LARGEST}")


if __name__ == "__main__":
    main()
