"""One softmax layer is enough: its average, the Boltzmann operator, tells contexts apart, where hardmax cannot."""

from measureformer.universality.boltzmann._compile import OneLayer as OneLayer
from measureformer.universality.boltzmann._compile import compile as compile
from measureformer.universality.boltzmann._hardmax import Collision as Collision
from measureformer.universality.boltzmann._hardmax import hardmax_collision as hardmax_collision
from measureformer.universality.boltzmann._memory import Memory as Memory
from measureformer.universality.boltzmann._memory import memorize as memorize
from measureformer.universality.boltzmann._operator import boltz as boltz
from measureformer.universality.boltzmann._operator import kajitsuka24_log_separation as kajitsuka24_log_separation
from measureformer.universality.boltzmann._operator import kajitsuka24_separation as kajitsuka24_separation
from measureformer.universality.boltzmann._operator import log_boltz_gap as log_boltz_gap
