"""Learning in context: drag examples, and compare what layers of linear attention learn from them with least squares,
ridge regression and a softmax head."""
# pyright: reportUnusedExpression=false

import marimo

app = marimo.App(width="full", app_title="Learning in context")


@app.cell
def _():
    import marimo as mo

    from measureformer.explore import drawing, incontext
    from measureformer.explore.points import DraggablePoints

    mo.md("""
    # Learning in context

    The points are the prompt: examples (x, y). One layer of linear attention is exactly one step of gradient descent on
    the mean square error, so that more layers come closer to least squares; few of them behave like ridge regression. A
    softmax head does not know about lines: it averages the labels of inputs nearby.
    """)
    return DraggablePoints, drawing, incontext, mo


@app.cell
def _(mo):
    layers = mo.ui.slider(steps=[1, 2, 4, 8, 16], value=4, label="layers", show_value=True)
    eta = mo.ui.slider(0.1, 1.5, step=0.1, value=0.8, label="rate η", show_value=True)
    penalty = mo.ui.slider(steps=[0.01, 0.1, 1.0, 10.0], value=1.0, label="penalty", show_value=True)
    sharpness = mo.ui.slider(steps=[1.0, 3.0, 10.0, 30.0, 100.0], value=10.0, label="sharpness", show_value=True)
    mo.hstack([layers, eta, penalty, sharpness], justify="start", gap=1.5, wrap=True)
    return eta, layers, penalty, sharpness


@app.cell
def _(DraggablePoints, mo):
    begin = [[-1.1, -0.9], [-0.7, -0.2], [-0.3, -0.3], [0.2, 0.4], [0.6, 0.3], [1.1, 1.2]]
    points = mo.ui.anywidget(
        DraggablePoints(
            begin, box=(-1.5, 1.5, -2.0, 2.0), least=1, most=200, height=480, title="examples", xlabel="x", ylabel="y"
        )
    )
    return (points,)


@app.cell
def _(incontext, layers, mo):
    with mo.status.spinner(title="Compiling the layers …"):
        incontext.warm_up(layers.value, 6)
    ready = True
    return (ready,)


@app.cell
def _(drawing, eta, incontext, layers, mo, penalty, points, ready, sharpness):
    assert ready
    examples = points.array
    found = incontext.learn(
        examples, eta=eta.value, layers=layers.value, penalty=penalty.value, sharpness=sharpness.value
    )
    points.curves = incontext.curves(found)
    words = [("ink", "least squares"), (2, "ridge"), (1, "linear attention"), (3, "softmax head")]
    rows = []
    for name, (intercept, slope) in found.weights.items():
        rows.append(
            (name, f"{intercept:.3f} + {slope:.3f} x, error {incontext.error(examples, (intercept, slope)):.4f}")
        )
    figure = drawing.picture(incontext.figure(examples, eta.value, layers.value))
    drawing.halves(
        mo.vstack([points, mo.Html(drawing.shown(drawing.key(words)))]),
        mo.Html(drawing.shown(drawing.table(rows), figure)),
    )
    return


if __name__ == "__main__":
    app.run()
