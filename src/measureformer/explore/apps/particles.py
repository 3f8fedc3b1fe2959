"""Tokens as particles: drag tokens in the plane, on the circle or on the sphere, choose a layer, and watch its flow,
its clusters, the energy, who attends to whom, and how much the layer stretches."""
# pyright: reportUnusedExpression=false

import marimo

app = marimo.App(width="full", app_title="Tokens as particles")


@app.cell
def _():
    import marimo as mo

    from measureformer.explore import drawing, particles
    from measureformer.explore.points import DraggablePoints

    mo.md("""
    # Tokens as particles

    Infinitely many thin layers of attention move tokens along `x' = Σ_j P_ij V x_j`, where `P` is how much each token
    attends to the others. On the circle and on the sphere tokens are normalised after each layer. Thin lines are the
    ways of the tokens, dots are where they end; on the circle, time goes inwards.
    """)
    return DraggablePoints, drawing, mo, particles


@app.cell
def _(mo, particles):
    space = mo.ui.dropdown(["plane", "circle", "sphere"], value="circle", label="tokens live in the", searchable=False)
    count = mo.ui.slider(2, 200, value=12, label="tokens at first", show_value=True, debounce=True)
    kernel = mo.ui.dropdown(list(particles.KERNELS), value="softmax", label="normalisation", searchable=False)
    heads = mo.ui.slider(1, 4, value=1, label="heads", show_value=True)
    preset = mo.ui.dropdown(list(particles.PRESETS), value="attract: V = I", label="matrices", searchable=False)
    beta = mo.ui.slider(0.0, 10.0, step=0.1, value=4.0, label="β", show_value=True)
    time = mo.ui.slider(0.1, 20.0, step=0.1, value=4.0, label="time", show_value=True)
    controls = mo.vstack(
        [
            mo.hstack([space, count, kernel, heads], justify="start", gap=1.5),
            mo.hstack([preset, beta, time], justify="start", gap=1.5),
        ]
    )
    controls
    return beta, count, heads, kernel, preset, space, time


@app.cell
def _(heads, mo, particles, preset, space):
    first = particles.Layer.preset(preset.value, space.value, heads.value)
    entries = mo.ui.array(
        [
            mo.ui.matrix(
                matrix, min_value=-5, max_value=5, step=0.1, precision=1, debounce=True, label=f"{name} of head {h + 1}"
            )
            for h in range(heads.value)
            for name, matrix in (("Q", first.Q[h]), ("K", first.K[h]), ("V", first.V[h]))
        ]
    )
    return (entries,)


@app.cell
def _(DraggablePoints, count, mo, particles, space):
    begin = particles.start(space.value, count.value)
    points = mo.ui.anywidget(
        DraggablePoints(begin, view=space.value, box=(-4.2, 4.2, -3.2, 3.2), least=1, most=200, title="tokens")
    )
    return (points,)


@app.cell
def _(beta, entries, heads, kernel, np, particles, space):
    matrices = np.array(entries.value, float).reshape(heads.value, 3, *np.shape(entries.value[0]))
    layer = particles.Layer(
        space.value, matrices[:, 0], matrices[:, 1], matrices[:, 2], float(beta.value), kernel.value
    )
    return (layer,)


@app.cell
def _():
    import numpy as np

    return (np,)


@app.cell
def _(count, heads, kernel, mo, particles, space):
    with mo.status.spinner(title="Compiling the flow …"):
        particles.warm_up(
            particles.Layer.preset("attract: V = I", space.value, heads.value, 1.0, kernel.value), count.value
        )
    ready = True
    return (ready,)


@app.cell
def _(layer, particles, points, ready, time):
    assert ready
    tokens = points.array
    found = particles.run(layer, tokens, time.value)
    points.curves = particles.paths(layer, found)
    return found, tokens


@app.cell
def _(drawing, entries, found, layer, mo, particles, points, tokens):
    stretched = particles.lipschitz(layer, tokens)
    rows = [
        ("tokens", len(tokens)),
        ("clusters at the end", int(found.clusters[-1])),
        ("energy, first → last", f"{found.energy[0]:.3f} → {found.energy[-1]:.3f}"),
        ("local Lipschitz constant", stretched if stretched == stretched else "for softmax only"),
    ]
    # neighbours side by side, so that clusters are blocks
    matrix = particles.attention_matrix(layer, particles.by_angle(tokens))
    shades = drawing.heat(matrix, f"Attention matrix of {len(tokens)} tokens", high=float(matrix.max()))
    parts = [
        drawing.table(rows),
        drawing.picture(particles.figure(found)),
        drawing.picture(particles.cluster_figure(found)),
    ]
    if found.ended:
        parts.insert(0, drawing.refusal(found.ended))
    mo.hstack(
        [
            points,
            mo.vstack([mo.Html(drawing.shown(*parts))]),
            mo.vstack(
                [
                    mo.md("who (row) attends to whom (column), by angle, head 1"),
                    mo.Html(drawing.shown(shades)),
                    mo.accordion({"entries of Q, K, V": mo.hstack(list(entries.elements), justify="start", wrap=True)}),
                ]
            ),
        ],
        widths=[5, 4, 3],
        gap=1.5,
        align="start",
    )
    return


if __name__ == "__main__":
    app.run()
