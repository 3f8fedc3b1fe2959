"""How smooth layers are: Lipschitz constants in theory, at a given cloud, and in the worst case."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.regularity.adversary import adversary as adversary
from measureformer.regularity.adversary import two_clusters as two_clusters
from measureformer.regularity.bounds import ball as ball
from measureformer.regularity.bounds import castin24_ball as castin24_ball
from measureformer.regularity.bounds import castin24_tokens as castin24_tokens
from measureformer.regularity.bounds import masked_ball as masked_ball
from measureformer.regularity.bounds import push_forward as push_forward
from measureformer.regularity.bounds import tokens as tokens
from measureformer.regularity.local import local_lipschitz as local_lipschitz
from measureformer.regularity.pairs import worst_pair as worst_pair

if not TYPE_CHECKING:
    __getattr__ = _suggest_names(__name__)
