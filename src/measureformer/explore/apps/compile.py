"""Compile a function: draw a function of one variable, and see the transformer that computes it, and its error as cells
get smaller or layers wider."""
# pyright: reportUnusedExpression=false

import marimo

app = marimo.App(width="full", app_title="Compile a function")


@app.cell
def _():
    import marimo as mo
    import numpy as np

    from measureformer.explore import compile as compiling
    from measureformer.explore import drawing
    from measureformer.explore.points import DraggablePoints

    mo.md("""
    # Compile a function

    Drag the points up and down to draw g. The network has no training: its weights are written down, by one of two
    proofs that transformers are universal. The answer is g of the token itself, or g of the mean of the tokens, which
    needs attention.
    """)
    return DraggablePoints, compiling, drawing, mo, np


@app.cell
def _(mo):
    way = mo.ui.dropdown(["cells", "products"], value="cells", label="proof", searchable=False)
    of = mo.ui.dropdown(
        {"the token": "token", "the mean of two tokens": "mean"},
        value="the mean of two tokens",
        label="g of",
        searchable=False,
    )
    mo.hstack([way, of], justify="start", gap=1.5)
    return of, way


@app.cell
def _(compiling, mo, way):
    if way.value == "cells":
        cells = mo.ui.slider(steps=list(compiling.CELLS), value=16, label="1/δ, cells in [0, 1]", show_value=True)
        degree = None
    else:
        cells = mo.ui.slider(
            steps=[2, 4, 8, 16, 32, 64, 128], value=8, label="width: cells of a product", show_value=True
        )
        degree = mo.ui.slider(1, 8, value=4, label="degree of the polynomial", show_value=True)
    mo.hstack([part for part in (degree, cells) if part is not None], justify="start", gap=1.5)
    return cells, degree


@app.cell
def _(DraggablePoints, mo, np):
    x = np.linspace(0, 1, 9)
    points = mo.ui.anywidget(
        DraggablePoints(
            np.column_stack([x, 0.6 * np.sin(6 * x)]),
            box=(0.0, 1.0, -1.0, 1.0),
            least=9,
            most=9,
            only="y",
            height=360,
            title="values of g",
            xlabel="x",
            ylabel="g(x)",
        )
    )
    return (points,)


@app.cell
def _(cells, compiling, degree, drawing, mo, of, points, way):
    from measureformer.explore.points import curve

    g = compiling.interpolated(points.array)
    points.curves = [curve([[v, float(g(v))] for v in compiling.GRID[::8]], "ink", style="dashed")]
    if way.value == "cells":
        found = compiling.refined(g, of.value)
        net = found[cells.value]
        more = [drawing.picture(compiling.error_figure(found, cells.value))]
        words = "Yun et al.: quantise, give each context a number, look its value up; two tokens in one cell go to 0."
    else:
        net = compiling.by_products(g, degree.value, cells.value, of.value)
        more = []
        words = (
            "Furuya, de Hoop and Peyré: a polynomial in blocks of attention; perceptrons multiply, on so many cells."
        )
    rows = [
        ("largest error, tokens in different cells" if way.value == "cells" else "largest error", net.error),
        ("mean error", net.mean_error),
        *net.size,
    ]
    drawing.halves(
        mo.vstack([points, mo.md(words), mo.Html(drawing.shown(drawing.table(rows)))]),
        mo.Html(drawing.shown(drawing.picture(compiling.figure(net)), *more)),
    )
    return


if __name__ == "__main__":
    app.run()
