"""The lens: real pretrained transformers from disk, as maps between measures. No torch, no network, no pickle."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.lens.diagnose import diagnose as diagnose
from measureformer.lens.families import Family as Family
from measureformer.lens.families import Table as Table
from measureformer.lens.families import register as register
from measureformer.lens.model import load as load
from measureformer.lens.model import untrained as untrained

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
