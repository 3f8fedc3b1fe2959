"""Infinite depth: tokens that move with a velocity, and the measures they form."""

from measureformer.flows._flow import Trajectory as Trajectory
from measureformer.flows._flow import flow as flow
from measureformer.flows._map import FlowMap as FlowMap
from measureformer.flows._stability import Stability as Stability
from measureformer.flows._stability import stability as stability
from measureformer.flows.interaction import CuckerSmale as CuckerSmale
from measureformer.flows.interaction import Interaction as Interaction
from measureformer.flows.interaction import SecondOrder as SecondOrder
