"""What does attention over very many tokens in the plane cost, and how accurate is it?

Run: python examples/a_million_tokens.py [NUMBER OF TOKENS]    (defaults to 1,000,000)
"""

import sys
import time

import numpy as np

import measureformer as mf

n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
rng = np.random.default_rng(0)
points, values = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))

for turn in ("first call, compilation included", "second call"):
    start = time.perf_counter()
    out = mf.attend(points, points, values, method="grid", tol=1e-6)
    print(f"{n:,} queries, {n:,} keys: {time.perf_counter() - start:.2f} s ({turn})")
print(f"certified error of every value: at most {np.max(out.error_bound):.1e}")

few = slice(0, 100)
exact = mf.attend(points[few], points, values, method="streaming")
print(f"largest difference from exact attention, 100 queries: {np.abs(out.values[few] - exact.values).max():.1e}")
