"""Which heads of a pretrained transformer spend their attention on the first token, the attention sink?

Run: python examples/which_heads_attend_to_a_sink.py [PATH OF A MODEL]

Writes heads.csv. The bundled model is the default. Needs the extra "lens".
"""

import csv
import sys
from pathlib import Path

import numpy as np

import measureformer as mf

TEXT = "A function is a rule that assigns to each input exactly one output."
COLUMNS = ("first", "entropy", "attraction")

found = mf.lens.diagnose(mf.lens.load(*sys.argv[1:2]), TEXT, lipschitz=False, sweeps=False)
values = {name: found.column(name) for name in COLUMNS}
with Path("heads.csv").open("w", newline="", encoding="utf-8") as file:
    table = csv.writer(file)
    table.writerow(("layer", "head", *COLUMNS))
    for layer, head in np.ndindex(found.depth, found.head_count):
        table.writerow((layer, head, *(values[name][layer, head] for name in COLUMNS)))
layer, head = np.unravel_index(np.nanargmax(values["first"]), values["first"].shape)
share = values["first"][layer, head]
print(f"strongest sink: layer {layer}, head {head}, {share:.0%} of its attention on the first token")
