"""Mean field: from N tokens to their law, and how fast."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.mean_field.convergence import mean_field_rate as mean_field_rate
from measureformer.mean_field.convergence import pair_covariance as pair_covariance

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
