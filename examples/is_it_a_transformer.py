"""Is a black box between point clouds a transformer, and if not, why not?

Run: python examples/is_it_a_transformer.py
"""

import jax
import numpy as np

import measureformer as mf

box = mf.Box([-1.0, -1.0], [1.0, 1.0])


def towards_the_mean(mu):
    """Every token moves half the way to the centre of mass: a layer of attention can do this."""
    return mu.push(lambda x: 0.5 * (x + mu.mean()))


def sharpen(mu):
    """Heavy tokens become heavier: masses change, so no transformer does this."""
    squared = np.asarray(mu.weights) ** 2
    return mf.Discrete.weighted(mu.points, squared / squared.sum() * mu.mass)


for black_box in (towards_the_mean, sharpen):
    found = mf.is_transformer(black_box, box, jax.random.key(0), trials=3)
    print(f"{black_box.__name__}: {found.verdict}")
    print(found.report())
    print()
