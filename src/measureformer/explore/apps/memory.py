"""Recall a digit: draw a digit with the mouse, and a Hopfield memory of a hundred real ones answers with what it remembers;
its update is attention."""
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

    The memory holds ten handwritten pictures of each digit. An update is one layer of attention,
    `ξ ↦ Σ_i softmax(β⟨x_i, ξ⟩) x_i`; it is repeated until nothing changes. At small β pictures melt into an average, at
    large β the answer is one of them.
    """)
    return DraggablePoints, drawing, memory, mo


@app.cell
def _(mo):
    beta = mo.ui.slider(steps=[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0], value=0.5, label="β", show_value=True)
    beta
    return (beta,)


@app.cell
def _(DraggablePoints, mo):
    begin = [[0.32, 0.8], [0.36, 0.8], [0.4, 0.8], [0.44, 0.8], [0.48, 0.8], [0.52, 0.8], [0.56, 0.8], [0.6, 0.8], [0.64, 0.8]]
    begin += [[0.66 - 0.02 * k, 0.77 - 0.05 * k] for k in range(12)]
    points = mo.ui.anywidget(
        DraggablePoints(begin, box=(0.0, 1.0, 0.0, 1.0), least=0, most=200, pen=True, height=560, title="a drawing")
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
        mo.vstack([mo.Html(drawing.heat(image, words, low=-1.0, width="9rem")), mo.md(words)]) for words, image in shown
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
                    mo.Html(drawing.column(drawing.table(rows), drawing.picture(memory.figure(found)))),
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
