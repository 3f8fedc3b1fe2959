"""How much can one layer of a pretrained transformer stretch the distance between two tokens or two prompts?

Run: python examples/how_lipschitz_is_a_layer.py [PATH OF A MODEL]

The bundled model is the default. Needs the extra "lens".
"""

import sys

import measureformer as mf

TEXT = "A function is a rule that assigns to each input exactly one output."

model = mf.lens.load(*sys.argv[1:2])
trace = model.trace(TEXT)
print("Local Lipschitz constants in L²(μ) at the tokens of the text, layer by layer:")
for number, (layer, measure) in enumerate(zip(model.layers, trace.measures, strict=False)):
    found = mf.local_lipschitz(layer, measure)
    print(f"  layer {number}: attained {found.lower:8.2f}   certified upper bound {found.upper:8.2f}")
