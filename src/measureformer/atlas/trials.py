"""How often a claim passes: a `Trial` is a run on another seed, reduced to what did not come out as claimed."""

from __future__ import annotations

from dataclasses import dataclass

FRESH = 1000
"""Distance of the first fresh seed from the seed of a result; tests and development use smaller seeds."""


@dataclass(frozen=True)
class Trial:
    """A claim and its controls on another seed. It passes if nothing went wrong.

    Arguments:
        seed: seed of all randomness.
        failed: names of the checks that do not hold.
        unrejected: pairs (check, control) that should be violated and are not.
        raised: what was raised instead, in a sentence.
        seconds: duration.

    >>> Trial(1000).passes, Trial(1001, failed=("slope",)).passes
    (True, False)
    """

    seed: int
    failed: tuple[str, ...] = ()
    unrejected: tuple[tuple[str, str], ...] = ()
    raised: str = ""
    seconds: float = 0.0

    @property
    def passes(self) -> bool:
        return not (self.failed or self.unrejected or self.raised)


def fresh_seeds(seed: int, count: int) -> list[int]:
    """The seeds of the first trials of a result.

    >>> fresh_seeds(0, 3), fresh_seeds(7, 1)
    ([1000, 1001, 1002], [1007])
    """
    return [(seed + FRESH + i) % 2**32 for i in range(count)]
