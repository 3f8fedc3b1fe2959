"""Training of anything by gradients: one loop, one way to save it and to go on, over the devices that there are."""

from measureformer.training.devices import use_cores as use_cores
from measureformer.training.optimization import Optimization as Optimization
