"""Text: a small causal language model, trained on a file, that says how surprised it is and goes on writing."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.text.corpus import read as read
from measureformer.text.generate import generate as generate
from measureformer.text.ngram import ngram as ngram
from measureformer.text.saved import TextModel as TextModel
from measureformer.text.saved import load as load
from measureformer.text.saved import save as save
from measureformer.text.tokens import Tokenizer as Tokenizer
from measureformer.text.train import perplexity as perplexity
from measureformer.text.train import train as train

if not TYPE_CHECKING:
    __getattr__ = _suggest_names(__name__)
