"""Infinite depth: flows of measures, of Gaussians, and of tokens that cluster."""

from measureformer.flows._gaussian import GaussianFlow as GaussianFlow
from measureformer.flows._gaussian import castin25_blow_up as castin25_blow_up
from measureformer.flows._gaussian import castin25_covariance as castin25_covariance
from measureformer.flows._gaussian import castin25_stationary_rank as castin25_stationary_rank
from measureformer.flows._gaussian import gaussian_flow as gaussian_flow
from measureformer.flows._gaussian import moment_rates as moment_rates
from measureformer.flows.clustering import Clusters as Clusters
from measureformer.flows.clustering import Plateau as Plateau
from measureformer.flows.clustering import cluster_counts as cluster_counts
from measureformer.flows.clustering import clusters as clusters
from measureformer.flows.clustering import merge_times as merge_times
from measureformer.flows.clustering import plateaux as plateaux
from measureformer.flows.rescaled import RescaledFlow as RescaledFlow
from measureformer.flows.rescaled import polytope_vertices as polytope_vertices
from measureformer.flows.rescaled import rescaled_flow as rescaled_flow
from measureformer.flows.sphere import Equiangular as Equiangular
from measureformer.flows.sphere import SphereFlow as SphereFlow
from measureformer.flows.sphere import equiangular as equiangular
from measureformer.flows.sphere import geshkovski23_equiangular as geshkovski23_equiangular
from measureformer.flows.sphere import sphere_energy as sphere_energy
from measureformer.flows.sphere import sphere_flow as sphere_flow
