"""How smooth layers are: Lipschitz constants in theory, at a given cloud, and in the worst case."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.regularity.adversary import adversary as adversary
from measureformer.regularity.adversary import two_clusters as two_clusters
from measureformer.regularity.bounds import lipschitz_ball as lipschitz_ball
from measureformer.regularity.bounds import lipschitz_ball_castin24 as lipschitz_ball_castin24
from measureformer.regularity.bounds import lipschitz_masked as lipschitz_masked
from measureformer.regularity.bounds import lipschitz_push_forward as lipschitz_push_forward
from measureformer.regularity.bounds import lipschitz_tokens as lipschitz_tokens
from measureformer.regularity.bounds import lipschitz_tokens_castin24 as lipschitz_tokens_castin24
from measureformer.regularity.local import local_lipschitz as local_lipschitz
from measureformer.regularity.pairs import worst_pair as worst_pair

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
