"""The engine: exact attention on arrays. It knows no measures, only queries, keys, values and log-weights."""

from measureformer.attention._attend import Attended as Attended
from measureformer.attention._attend import attend as attend
from measureformer.attention._concentration import Concentration as Concentration
from measureformer.attention._concentration import concentration as concentration
from measureformer.attention._coverage import Coverage as Coverage
from measureformer.attention._coverage import coverage as coverage
from measureformer.attention._coverage import fewest as fewest
from measureformer.attention.grid import Grid as Grid
from measureformer.attention.grid import Plan as Plan
from measureformer.attention.hardmax import hardmax as hardmax
from measureformer.attention.linear import masked_linear as masked_linear
from measureformer.attention.sharded import Sharded as Sharded
from measureformer.attention.streaming import Streaming as Streaming
