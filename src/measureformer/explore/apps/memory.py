"""Recall a digit: draw a digit with the mouse, and a Hopfield memory of a hundred real ones answers with what it
remembers; its update is attention."""
# pyright: reportUnusedExpression=false

import marimo

app = marimo.App(width="full", app_title="Recall a digit")


@app.cell
def _():
    import marimo as mo

    from measureformer.explore import drawing, memory
    from measureformer.explore.points import DraggablePoints

    mo.md("""
    # Recall a digit

    The memory holds ten handwritten pictures of each digit, centred and of length 1. An update is one layer of
    attention, `ξ ↦ Σ_i softmax(β⟨x_i, ξ⟩) x_i`; it is repeated until nothing changes. At small β pictures melt into an
    average, at large β the answer is one of them.
    """)
    return DraggablePoints, drawing, memory, mo


@app.cell
def _(mo):
    beta = mo.ui.slider(steps=[1, 2, 5, 10, 15, 20, 30, 50, 100], value=20, label="β", show_value=True)
    beta
    return (beta,)


@app.cell
def _(DraggablePoints, memory, mo):
    begin = memory.line([[0.33, 0.7], [0.45, 0.83], [0.62, 0.75], [0.6, 0.55], [0.35, 0.2], [0.7, 0.2]])
    points = mo.ui.anywidget(
        DraggablePoints(begin, box=(0.0, 1.0, 0.0, 1.0), least=0, most=200, pen=True, title="a drawing")
    )
    return (points,)


@app.cell
def _(memory, mo):
    with mo.status.spinner(title="Filling the memory …"):
        memory.warm_up()
    ready = True
    return (ready,)


@app.cell
def _(beta, drawing, memory, mo, points, ready):
    assert ready
    found = memory.recall(points.array, beta.value)
    shown = [
        ("drawn", found.drawn),
        ("after one update", found.first),
        ("at rest", found.last),
        (f"nearest stored: {found.label}", found.nearest),
    ]
    pictures = [
        mo.vstack([mo.Html(drawing.shown(drawing.heat(image, words, low=-1.0, width="9rem"))), mo.md(words)])
        for words, image in shown
    ]
    rows = [
        ("answer", str(found.label)),
        ("updates", found.steps),
        ("attention on the nearest picture", found.share),
    ]
    mo.hstack(
        [
            points,
            mo.vstack(
                [
                    mo.hstack(pictures, justify="start", gap=1.0),
                    mo.Html(drawing.shown(drawing.table(rows), drawing.picture(memory.figure(found)))),
                ]
            ),
        ],
        widths=[2, 3],
        gap=1.5,
        align="start",
    )
    return


if __name__ == "__main__":
    app.run()
