"""Alice and Elise: two prompts that differ in one word of many come together as they grow, and the answers stay apart;
a map between measures that is continuous, keeps supports, and is no transformer."""
# pyright: reportUnusedExpression=false

import marimo

app = marimo.App(width="medium", app_title="Alice and Elise")


@app.cell
def _():
    import marimo as mo

    from measureformer.explore import counterexample, drawing

    mo.md("""
    # Alice and Elise

    Words are numbers in [−1, 1]: the first word of a prompt is 'Alice' (at δ) or 'Elise' (at −δ), two more are near 0,
    and all others are at 1. The longer the prompts, the closer they are as measures. A transformer with a continuous
    in-context map would have to answer alike; this map does not, and yet it is continuous as a map between measures.
    """)
    return counterexample, drawing, mo


@app.cell
def _(mo):
    length = mo.ui.slider(
        steps=[4, 6, 10, 20, 50, 100, 300, 1000, 3000, 10_000, 100_000, 1_000_000],
        value=20,
        label="words in a prompt",
        show_value=True,
    )
    delta = mo.ui.slider(0.01, 0.2, step=0.01, value=0.05, label="δ", show_value=True)
    softening = mo.ui.slider(0.0, 0.5, step=0.02, value=0.0, label="softening", show_value=True)
    mo.hstack([length, delta, softening], justify="start", gap=1.5)
    return delta, length, softening


@app.cell
def _(counterexample, mo):
    with mo.status.spinner(title="Compiling the map …"):
        counterexample.warm_up()
    ready = True
    return (ready,)


@app.cell
def _(counterexample, delta, drawing, length, mo, ready, softening):
    assert ready
    settings = {"delta": delta.value, "softening": softening.value}
    now = counterexample.answers(length.value, **settings)
    rows = [
        ("distance of the prompts, W₁", now.distance),
        ("answer to Alice", now.alice),
        ("answer to Elise", now.elise),
        ("gap of the answers", now.gap),
        ("gap over distance", now.gap / now.distance),
    ]
    figures = [
        mo.Html(drawing.shown(drawing.picture(counterexample.map_figure(length.value, **settings)))),
        mo.Html(drawing.shown(drawing.picture(counterexample.gap_figure(length.value, **settings)))),
    ]
    mo.vstack([mo.Html(drawing.shown(drawing.table(rows))), mo.hstack(figures, widths="equal", gap=1.5)])
    return


@app.cell
def _(mo):
    mo.md(""" With softening > 0 the map is given by a continuous in-context map, and the gap closes like the distance.
    Try it on your own map: `mf.is_transformer(f, mf.Box([-1.0], [1.0]), key)`.
    """)
    return


if __name__ == "__main__":
    app.run()
