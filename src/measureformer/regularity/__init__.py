"""How smooth layers are: Lipschitz constants in theory, at a given cloud, and in the worst case."""

from measureformer.regularity._adversary import adversary as adversary
from measureformer.regularity._adversary import two_clusters as two_clusters
from measureformer.regularity._local import LocalLipschitz as LocalLipschitz
from measureformer.regularity._local import local_lipschitz as local_lipschitz
from measureformer.regularity._pairs import WorstPair as WorstPair
from measureformer.regularity._pairs import worst_pair as worst_pair
from measureformer.regularity.bounds import ball as ball
from measureformer.regularity.bounds import castin24_ball as castin24_ball
from measureformer.regularity.bounds import castin24_tokens as castin24_tokens
from measureformer.regularity.bounds import masked_ball as masked_ball
from measureformer.regularity.bounds import push_forward as push_forward
from measureformer.regularity.bounds import tokens as tokens
