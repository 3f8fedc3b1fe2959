"""Transport: distances between measures, the couplings behind them, and bounds where exact answers are out of reach."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.transport.bracket import wasserstein_bracket as wasserstein_bracket
from measureformer.transport.conditional import conditional_wasserstein as conditional_wasserstein
from measureformer.transport.coupling import coupling as coupling
from measureformer.transport.positive import positive_wasserstein as positive_wasserstein
from measureformer.transport.sinkhorn import sinkhorn as sinkhorn
from measureformer.transport.sliced import sliced_wasserstein as sliced_wasserstein
from measureformer.transport.wasserstein import wasserstein as wasserstein

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
