"""Measures: what a prompt is. Points with weights, Gaussians, mixtures, and points in space and time."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.measures.base import AbstractMeasure as AbstractMeasure
from measureformer.measures.discrete import Discrete as Discrete
from measureformer.measures.domain import Ball as Ball
from measureformer.measures.domain import Box as Box
from measureformer.measures.domain import FixedTimes as FixedTimes
from measureformer.measures.gap import subset_sum_gap as subset_sum_gap
from measureformer.measures.gaussian import Gaussian as Gaussian
from measureformer.measures.mixture import GaussianMixture as GaussianMixture
from measureformer.measures.sharding import gather as gather
from measureformer.measures.sharding import shard as shard
from measureformer.measures.spacetime import SpaceTime as SpaceTime

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
