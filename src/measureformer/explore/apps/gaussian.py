"""Gaussian flow: a Gaussian stays one under a very deep layer; drag its mean and two points one standard deviation
away, and watch it shrink, turn, collapse to a line, or blow up."""
# pyright: reportUnusedExpression=false

import marimo

app = marimo.App(width="full", app_title="Gaussian flow")


@app.cell
def _():
    import marimo as mo
    import numpy as np

    import measureformer as mf
    from measureformer.explore import drawing, gaussian
    from measureformer.explore.points import DraggablePoints

    mo.md("""
    # A Gaussian under a very deep layer

    Attention is affine on Gaussians, so that they stay Gaussian: mean and covariance follow an ordinary differential
    equation, and no token is needed. For softmax, `Σ' = VΣAΣ + ΣAᵀΣVᵀ` with `A = KᵀQ`.
    """)
    return DraggablePoints, drawing, gaussian, mf, mo, np


@app.cell
def _(gaussian, mo, np):
    kernel = mo.ui.dropdown(list(gaussian.KERNELS), value="softmax", label="attention", searchable=False)
    time = mo.ui.slider(0.05, 5.0, step=0.05, value=1.0, label="time", show_value=True)
    matrices = mo.ui.dictionary(
        {
            name: mo.ui.matrix(value, min_value=-3, max_value=3, step=0.1, precision=1, debounce=True, label=name)
            for name, value in (("Q", np.eye(2)), ("K", np.eye(2)), ("V", -np.eye(2)))
        }
    )
    mo.hstack([kernel, time, *matrices.elements.values()], justify="start", gap=1.5, align="center")
    return kernel, matrices, time


@app.cell
def _(DraggablePoints, mo):
    points = mo.ui.anywidget(
        DraggablePoints(
            [[1.0, 0.5], [2.2, 1.1], [0.7, 1.3]],
            box=(-4.2, 4.2, -3.2, 3.2),
            least=3,
            most=3,
            groups=[3, 0, 0],
            title="mean and two points one standard deviation away",
        )
    )
    return (points,)


@app.cell
def _(gaussian, kernel, mo):
    with mo.status.spinner(title="Compiling the flow …"):
        gaussian.warm_up(kernel.value)
    ready = True
    return (ready,)


@app.cell
def _(drawing, gaussian, kernel, matrices, mf, mo, np, points, ready, time):
    assert ready
    try:
        chosen = (np.array(matrices.value[name], float) for name in "QKV")
        found = gaussian.run(points.array, *chosen, kernel=kernel.value, time=time.value)
        points.curves = gaussian.rings(found)
        rows = [
            ("blow-up", "none until then" if found.blow_up is None else f"at time {found.blow_up:.4g}"),
            ("last time shown", found.times[-1]),
            ("mean there", found.means[-1]),
        ]
        beside = drawing.shown(drawing.table(rows), drawing.picture(gaussian.figure(found)))
    except mf.MeasureformerError as error:
        beside = drawing.shown(drawing.refusal(error))
    words = [(0, "one standard deviation at first"), (1, "at the end"), (5, "in between"), ("ink", "way of the mean")]
    drawing.halves(mo.vstack([points, mo.Html(drawing.shown(drawing.key(words)))]), mo.Html(beside))
    return


if __name__ == "__main__":
    app.run()
