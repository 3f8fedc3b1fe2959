"""The atlas: claims of the theory, each with its controls, run and written up as pages. A guest of the library."""

from measureformer.atlas.claim import Claim as Claim
from measureformer.atlas.references import cite as cite
from measureformer.atlas.result import Check as Check
from measureformer.atlas.result import Outcome as Outcome
from measureformer.atlas.result import Result as Result
