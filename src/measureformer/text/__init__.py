"""Text: small causal language models trained on a file, their perplexity, and sampling from them."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.text.corpus import read_text as read_text
from measureformer.text.generate import generate as generate
from measureformer.text.ngram import ngram as ngram
from measureformer.text.saved import load_text as load_text
from measureformer.text.tokens import Tokenizer as Tokenizer
from measureformer.text.train import perplexity as perplexity
from measureformer.text.train import train_text as train_text

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
