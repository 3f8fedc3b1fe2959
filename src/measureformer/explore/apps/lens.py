"""The lens: where the tokens of a text go in a model from a folder on disk, layer by layer."""
# pyright: reportUnusedExpression=false

import marimo

app = marimo.App(width="full", app_title="The lens")


@app.cell
def _():
    import marimo as mo

    import measureformer as mf
    from measureformer.explore import drawing, lens
    from measureformer.explore.points import DraggablePoints

    mo.md("""
    # The lens

    A text is a cloud of tokens, and each layer moves it. Name a folder in Hugging Face layout (`config.json`,
    `model.safetensors`, `tokenizer.json`) or a `.gguf` file; without one, the small model of the package is opened.
    Nothing is downloaded.
    """)
    return DraggablePoints, drawing, lens, mf, mo


@app.cell
def _(mo):
    folder = mo.ui.text(label="model folder", placeholder="that of the package", full_width=True)
    text = mo.ui.text_area("To be, or not to be, that is the question.", label="text", rows=2, full_width=True)
    mo.hstack([folder, text], widths=[1, 2], gap=1.5)
    return folder, text


@app.cell
def _(drawing, folder, lens, mf, mo, text):
    found = None
    try:
        with mo.status.spinner(title="Reading the text …"):
            found = lens.look(lens.opened(folder.value), text.value)
        said = mo.Html(drawing.shown(drawing.table([("model", found.name)])))
    except mf.MeasureformerError as error:
        said = mo.Html(drawing.shown(drawing.refusal(error)))
    said
    return (found,)


@app.cell
def _(found, mo):
    layer = (
        None if found is None else mo.ui.slider(0, len(found.plane) - 1, value=0, label="after layer", show_value=True)
    )
    layer
    return (layer,)


@app.cell
def _(DraggablePoints, mo):
    cloud = mo.ui.anywidget(
        DraggablePoints(
            [], box=(-1.4, 1.4, -1.05, 1.05), least=0, most=0, title="tokens in the plane of two directions"
        )
    )
    return (cloud,)


@app.cell
def _(cloud, drawing, found, layer, lens, mo):
    shown = None
    if found is not None:
        cloud.curves = lens.curves(found, layer.value)
        words = drawing.table([("tokens", " · ".join(map(lens.visible, found.words)))])
        figures = (words, drawing.picture(lens.figure(found)), drawing.picture(lens.cosine_figure(found)))
        shown = drawing.halves(cloud, mo.Html(drawing.shown(*figures)))
    shown
    return


if __name__ == "__main__":
    app.run()
