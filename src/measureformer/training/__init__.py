"""Shared training loop: optimiser steps, checkpointing, data parallelism over local devices."""

from measureformer.training.architecture import Architecture as Architecture
from measureformer.training.devices import use_cores as use_cores
from measureformer.training.optimization import Optimization as Optimization
