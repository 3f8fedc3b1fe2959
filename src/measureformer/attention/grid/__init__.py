"""Near-linear attention in dimension 1, 2 and 3 on a grid of Chebyshev nodes, with a certificate for every query."""

from measureformer.attention.grid.costs import Costs as Costs
from measureformer.attention.grid.follow import followed as followed
from measureformer.attention.grid.follow import following as following
from measureformer.attention.grid.follow import plans_of_heads as plans_of_heads
from measureformer.attention.grid.grid import Grid as Grid
from measureformer.attention.grid.grid import grid_attention as grid_attention
from measureformer.attention.grid.grid import grid_if_faster as grid_if_faster
from measureformer.attention.grid.plan import GridPlan as GridPlan
