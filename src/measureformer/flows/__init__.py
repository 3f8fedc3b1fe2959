"""Infinite depth: flows of measures, of Gaussians and of densities."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.flows.castin25 import castin25_blow_up as castin25_blow_up
from measureformer.flows.castin25 import castin25_covariance as castin25_covariance
from measureformer.flows.density import Density as Density
from measureformer.flows.fit import fit_flow as fit_flow
from measureformer.flows.flow import flow as flow
from measureformer.flows.interaction import CuckerSmale as CuckerSmale
from measureformer.flows.interaction import Interaction as Interaction
from measureformer.flows.interaction import SecondOrder as SecondOrder
from measureformer.flows.load import load_flow as load_flow
from measureformer.flows.push_density import push_density as push_density
from measureformer.flows.stability import stability as stability
from measureformer.flows.training import Depth as Depth
from measureformer.flows.weak import weak_residual as weak_residual

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
