"""Files of torch, which are pickles: opened by torch for their weights only, and refused where there is no torch."""

from __future__ import annotations

import importlib
import re
import shlex
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from measureformer.errors import CheckpointError
from measureformer.storage.safetensors import damaged

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".cpkt", ".pkl")
NOT_WEIGHTS = ("optimizer", "scheduler", "scaler", "rng_state", "random_states", "training_args", "train_args")
"""What trainers leave beside the weights: these names, and longer ones that begin with them."""


def torch_files(folder: Path) -> list[Path]:
    """The files in a folder that may hold weights in the format of torch; those of that usual name alone."""
    named = (path for path in folder.iterdir() if path.suffix in PICKLES)
    found = sorted(path for path in named if not path.stem.startswith(NOT_WEIGHTS))
    return [path for path in found if path.name == "pytorch_model.bin"] or found


def open_torch(paths: Sequence[Path]) -> dict[str, np.ndarray]:
    """The tensors of one file, or of all shards; half precision becomes float32."""
    for path in paths:
        _refuse_bomb(path)
    try:
        torch = cast(Any, importlib.import_module("torch"))
    except ImportError:
        raise CheckpointError(
            got=f"{paths[0].name}, a pickle, which can run any program when it is opened",
            need="safetensors, or the package torch, which can open it for its weights only",
            do=f"Where torch is installed, in the folder of the file: {conversion([path.name for path in paths])}",
        ) from None
    found: dict[str, np.ndarray] = {}
    for path in paths:
        found |= _opened(torch, path)
    return found


def conversion(names: Sequence[str]) -> str:
    """The command that turns torch files of these names into model.safetensors; names may be hostile."""
    program = (
        "import torch, safetensors.torch as s; "
        f"files = [torch.load(f, map_location='cpu', weights_only=True) for f in {list(names)!r}]; "
        "s.save_file({k: v.contiguous().clone() for w in files for k, v in w.get('state_dict', w).items() "
        "if torch.is_tensor(v)}, 'model.safetensors')"
    )
    return f"python -c {shlex.quote(program)}"


def _opened(torch: Any, path: Path) -> dict[str, np.ndarray]:
    try:
        body = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or hostile pickle makes torch raise
        if other := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise CheckpointError(
                got=f"{path.name}, which holds Python objects besides weights ({other[1]})",
                need="a file of weights only",
                do="Convert it to the layout of Hugging Face with the library that wrote it (fairseq, say).",
            ) from None
        raise damaged(path, f"a file that torch does not open ({str(error).splitlines()[0][:80]})", "weights") from None
    # a state dictionary, or the first dictionary in a tuple
    if isinstance(body, (tuple, list)):
        body = next((part for part in cast(list[Any], body) if isinstance(part, dict)), {})
    entries = cast(dict[str, Any], body) if isinstance(body, dict) else {}
    for inner in ("state_dict", "model"):
        entries = cast(dict[str, Any], entries[inner]) if isinstance(entries.get(inner), dict) else entries
    found = {str(k): value.float().numpy() for k, value in entries.items() if isinstance(value, torch.Tensor)}
    if not found:
        raise CheckpointError(
            got=f"{path.name} without tensors; it holds {', '.join(map(str, list(entries)[:6]))[:80] or 'nothing'}",
            need="a state dictionary: tensors by name",
            do="Save model.state_dict() with torch.save, or with safetensors.",
        )
    return found


def _refuse_bomb(path: Path) -> None:
    """Torch files are archives whose members are not compressed: one that grows when it is opened is no torch file."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise damaged(path, f"an archive that cannot be read ({str(error)[:80]})", "weights") from None
    if unpacked > path.stat().st_size:
        raise CheckpointError(
            got=f"{path.name} of {path.stat().st_size} bytes, which would unpack to {unpacked}",
            need="an archive that is not compressed",
            do="Do not trust this file: torch does not write such archives.",
        )
