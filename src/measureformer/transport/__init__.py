"""Transport: distances between measures, the couplings behind them, and bounds where exact answers are out of reach."""

from measureformer.transport._coupling import Coupling as Coupling
from measureformer.transport._coupling import coupling as coupling
from measureformer.transport._sinkhorn import Entropic as Entropic
from measureformer.transport._sinkhorn import sinkhorn as sinkhorn
from measureformer.transport._wasserstein import transport_cost as transport_cost
from measureformer.transport._wasserstein import wasserstein as wasserstein
from measureformer.transport.bracket import Bracket as Bracket
from measureformer.transport.bracket import wasserstein_bracket as wasserstein_bracket
from measureformer.transport.conditional import conditional_wasserstein as conditional_wasserstein
from measureformer.transport.positive import positive_wasserstein as positive_wasserstein
from measureformer.transport.sliced import sliced_wasserstein as sliced_wasserstein
