"""Attention and support vectors: drag tokens, and watch descents of the prompt from eight starts turn towards the
direction of a support vector machine."""
# pyright: reportUnusedExpression=false

import marimo

app = marimo.App(width="full", app_title="Attention and support vectors")


@app.cell
def _():
    import marimo as mo

    from measureformer.explore import drawing, svm
    from measureformer.explore.points import DraggablePoints

    mo.md("""
    # Attention and support vectors

    Each colour is an example of three tokens; the ringed one has the best score. One vector p is trained so that
    `softmax(⟨x_t, p⟩)` selects it. p grows without bound, and its direction tends to that of the vector of least norm
    with `⟨x_best − x_t, p⟩ ≥ 1`, a support vector machine: the dashed line. Lengths are drawn on a logarithmic scale.
    """)
    return DraggablePoints, drawing, mo, svm


@app.cell
def _(mo, svm):
    examples = mo.ui.slider(1, 3, value=2, label="examples", show_value=True)
    method = mo.ui.dropdown(["gd", "ngd", "adam", "sign"], value="ngd", label="descent", searchable=False)
    steps = mo.ui.slider(steps=list(svm.STEPS), value=1000, label="steps", show_value=True)
    mo.hstack([examples, method, steps], justify="start", gap=1.5)
    return examples, method, steps


@app.cell
def _(DraggablePoints, examples, mo, svm):
    begin = svm.start(examples.value)
    points = mo.ui.anywidget(
        DraggablePoints(
            begin,
            box=(-3.2, 3.2, -2.4, 2.4),
            least=len(begin),
            most=len(begin),
            groups=[i // svm.TOKENS for i in range(len(begin))],
            title="tokens",
        )
    )
    return (points,)


@app.cell
def _(examples, method, mo, svm):
    with mo.status.spinner(title="Compiling the descent …"):
        svm.warm_up(method.value, examples.value)
    ready = True
    return (ready,)


@app.cell
def _(drawing, method, mo, points, ready, steps, svm):
    assert ready
    tokens = points.array
    found = svm.train(tokens, method=method.value, steps=steps.value)
    points.curves = svm.curves(tokens, found)
    if found.direction is None:
        beside = drawing.shown(drawing.refusal(svm.inseparable()))
    else:
        rows = [
            ("direction of the SVM", found.direction),
            ("its margin", found.margin),
            ("1 − cos at the end, worst start", found.misalignments[:, -1].max()),
        ]
        beside = drawing.shown(drawing.table(rows), drawing.picture(svm.figure(found)))
    words = [(5, "ways of the prompt"), ("ink", "direction of the SVM")]
    drawing.halves(mo.vstack([points, mo.Html(drawing.shown(drawing.key(words)))]), mo.Html(beside))
    return


if __name__ == "__main__":
    app.run()
