"""How well a head separates the tokens that it selects from the others, next to a support vector machine."""

from __future__ import annotations

import math

import numpy as np

from measureformer.implicit_bias import Problem

ASKED, RIVALS = 8, 24
"""Queries, and keys for each, whose selected tokens are separated from the others."""


def separation(q: np.ndarray, k: np.ndarray, times: np.ndarray | None = None) -> float:
    """Least lead of the selected keys over the others, as a share of the largest one for a matrix between q and k.

    The head is the matrix I of norm √dim: it leads by min ⟨k_a − k_t, q⟩/√dim, and a support vector machine by 1/|W|.
    Of a few queries, and of the keys with their largest logits, which are those that could be taken for the selected.
    """
    places = np.unique(np.linspace(len(q) // 2, len(q) - 1, ASKED).round().astype(int))
    logits = q[places] @ k.T
    if times is not None:
        logits = np.where(times[None, :] <= times[places, None], logits, -np.inf)
    near = np.argsort(-logits, axis=1, kind="stable")[:, :RIVALS]
    visible = np.isfinite(np.take_along_axis(logits, near, axis=1))
    useful = visible.sum(axis=1) > 1
    if not useful.any():
        return math.nan
    keys, visible, queries = k[near][useful], visible[useful], q[places][useful]
    problem = Problem(keys, queries, np.ones(len(keys)), np.zeros(keys.shape[2]), visible=visible)
    selected = np.zeros(len(keys), int)
    lead = float(problem.margins(np.eye(q.shape[1]), selected)[:, 1:].min()) / math.sqrt(q.shape[1])
    best = problem.svm(selected)
    return lead * best.norm if best.feasible else math.nan
