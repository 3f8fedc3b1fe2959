"""Does attention on the sphere gather all tokens in one cluster, and how long does it take as β grows?

Run: python examples/do_my_tokens_cluster.py    (writes clusters.svg)
"""

import numpy as np

import measureformer as mf

rng = np.random.default_rng(0)
points = rng.normal(size=(64, 3))
mu = mf.Discrete.uniform(points / np.linalg.norm(points, axis=1, keepdims=True))
times = np.linspace(0, 20, 81)

series = []
for beta in (1.0, 4.0, 9.0):
    G = mf.Attention.head(beta * np.eye(3), np.eye(3), np.eye(3))
    paths = np.stack([np.asarray(measure.points) for measure in mf.flow(mf.Tangent(G), mu, times).measures])
    closeness = np.einsum("tid,tjd->tij", paths, paths)
    clusters = [np.linalg.matrix_rank(gram > 0.99) for gram in closeness]  # blocks of ones: one for each cluster
    mean = closeness.mean(axis=(1, 2))
    print(f"β = {beta:g}: mean ⟨x_i, x_j⟩ from {mean[0]:.2f} to {mean[-1]:.2f}, {clusters[-1]} clusters")
    series.append(mf.Series(f"β = {beta:g}", times, mean, role="measured"))
mf.save_figure(mf.Figure("Clustering on the sphere", "depth", "mean inner product", tuple(series)), "clusters.svg")
