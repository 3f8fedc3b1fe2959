"""One softmax layer is enough: its average, the Boltzmann operator, tells contexts apart, where hardmax cannot."""

from measureformer.sequences.boltzmann.compile import OneLayer as OneLayer
from measureformer.sequences.boltzmann.compile import compile_one_layer as compile_one_layer
from measureformer.sequences.boltzmann.hardmax import Collision as Collision
from measureformer.sequences.boltzmann.hardmax import hardmax_collision as hardmax_collision
from measureformer.sequences.boltzmann.memory import Memory as Memory
from measureformer.sequences.boltzmann.memory import memorize as memorize
from measureformer.sequences.boltzmann.operator import boltz as boltz
from measureformer.sequences.boltzmann.operator import kajitsuka24_log_separation as kajitsuka24_log_separation
from measureformer.sequences.boltzmann.operator import kajitsuka24_separation as kajitsuka24_separation
from measureformer.sequences.boltzmann.operator import log_boltz_gap as log_boltz_gap
