"""What to pass where an annotation names a class of the library, for refusals."""

NEEDED = {
    "AbstractAtomic": "a measure with atoms, such as mf.Discrete.uniform(points)",
    "AbstractDomain": "a compact domain, such as mf.Box(low, high) or mf.Ball(center, radius)",
    "AbstractExpression": "a polynomial in blocks: sums and products of mf.universality.Block",
    "AbstractInContextMap": "an in-context map, such as mf.Attention.random(key, dim) or mf.flows.Interaction(f)",
    "AbstractInteraction": "an interaction, such as mf.memory.Polynomial(2) or mf.memory.Exponential()",
    "AbstractMeasure": "a measure, such as mf.Discrete.uniform(points)",
    "AbstractTask": "a task, such as mf.incontext.tasks.linear(dim)",
    "AbstractTrajectory": "a trajectory, as mf.flow returns it",
    "Attention": "softmax attention, such as mf.Attention.random(key, dim)",
    "Discrete": "a measure with atoms, such as mf.Discrete.uniform(points)",
    "Mesh": "a jax.sharding.Mesh",
    "SpaceTime": "a measure with times, such as mf.SpaceTime.sequence(points)",
}
"""By the name of the class; any other class is named itself."""
