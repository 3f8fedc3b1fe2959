"""Where flows end: tokens on the sphere, clusters, polytopes, phases, stationary covariances."""

from typing import TYPE_CHECKING

from measureformer.clustering.clusters import cluster_counts as cluster_counts
from measureformer.clustering.clusters import clusters as clusters
from measureformer.clustering.clusters import merge_times as merge_times
from measureformer.clustering.clusters import plateaux as plateaux
from measureformer.clustering.equiangular import equiangular as equiangular
from measureformer.clustering.equiangular import geshkovski23_equiangular as geshkovski23_equiangular
from measureformer.clustering.long_context import rigollet25_long_context as rigollet25_long_context
from measureformer.clustering.phase import Ensemble as Ensemble
from measureformer.clustering.phase import geshkovski23_phase_curve as geshkovski23_phase_curve
from measureformer.clustering.phase import phase_diagram as phase_diagram
from measureformer.clustering.rescaled import leaders as leaders
from measureformer.clustering.rescaled import polytope_vertices as polytope_vertices
from measureformer.clustering.sphere import sphere_energy as sphere_energy
from measureformer.clustering.stationary import castin25_stationary_rank as castin25_stationary_rank
from measureformer.clustering.stationary import stationary_type as stationary_type
from measureformer.errors import suggest_names as _suggest_names

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
