"""Which maps between measures are transformers: support, regular derivative, recovery."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.structure.continuity import continuity as continuity
from measureformer.structure.counterexample import counterexample as counterexample
from measureformer.structure.counterexample import prompts as prompts
from measureformer.structure.derivative import directional_derivative as directional_derivative
from measureformer.structure.derivative import regular_derivative as regular_derivative
from measureformer.structure.obstruction import obstruction as obstruction
from measureformer.structure.recover import recover as recover
from measureformer.structure.support import is_support_preserving as is_support_preserving
from measureformer.structure.theorem import is_transformer as is_transformer
from measureformer.structure.tokens import from_token_map as from_token_map
from measureformer.structure.tokens import to_token_map as to_token_map
from measureformer.structure.weights import generic as generic

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
