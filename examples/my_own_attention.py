"""How do I turn my own attention into a layer on measures, and check that it obeys the laws?

Run: python examples/my_own_attention.py
"""

import jax.numpy as jnp
import numpy as np
from jax.nn import softmax

import measureformer as mf
from measureformer.maps import AbstractInContextMap, check_laws


class CauchyAttention(AbstractInContextMap):
    """Attention with the kernel 1 / (1 + |x − y|²) in place of the exponential."""

    def evaluate(self, mu, x, t):
        # x has shape (m, d): m points at once
        squares = jnp.sum((x[:, None, :] - mu.points) ** 2, axis=-1)
        return softmax(mu.log_weights - jnp.log1p(squares), axis=1) @ mu.points


G = CauchyAttention()
print(check_laws(G))
mu = mf.Discrete.uniform(np.random.default_rng(0).normal(size=(40, 2)))
print("radius before and after four layers:", float(mu.radius()), float((G @ G @ G @ G).push(mu).radius()))
print("Lipschitz constant at mu:", mf.local_lipschitz(G, mu))

sigma = mf.SpaceTime.sequence(mu.points)  # the same tokens, read from left to right
causal = mf.Causal(G)(sigma, sigma.points[0], sigma.times[0])
print("the first token sees itself only:", np.allclose(causal, sigma.points[0]))
