"""Claims: statements of the theory made executable, a folder per chapter and a file per claim.

The folder is private because `measureformer.claims` is the function that lists them.
"""

from measureformer._claims.base import Claim as Claim
from measureformer._claims.registry import check as check
from measureformer._claims.registry import claims as claims
