"""What training makes of attention: which tokens gradient descent chooses, and the support vector machine behind it."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.implicit_bias.decompose import decompose as decompose
from measureformer.implicit_bias.descent import Descent as Descent
from measureformer.implicit_bias.descent import descend_all as descend_all
from measureformer.implicit_bias.generators import random_problems as random_problems
from measureformer.implicit_bias.margins import margins_of as margins_of
from measureformer.implicit_bias.problem import Problem as Problem
from measureformer.implicit_bias.svm import misalignment as misalignment

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
