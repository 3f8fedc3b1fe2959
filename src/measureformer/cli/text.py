"""`measureformer text`: train a small language model on a file, and let it write."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from measureformer.errors import TextError

app = typer.Typer(no_args_is_help=True, help="Text: train a small language model on a file, and let it write.")

Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]


@app.command()
def train(
    file: Annotated[
        Path | None, typer.Argument(help="A text in UTF-8; defaults to Python's own documentation.")
    ] = None,
    save: Annotated[Path, typer.Option(help="Folder of the training; rerunning the command resumes it.")] = (
        Path("text")
    ),
    steps: Annotated[int, typer.Option(help="Updates.")] = 2000,
    width: Annotated[int, typer.Option(help="Dimension of the tokens.")] = 128,
    layers: Annotated[int, typer.Option(help="Blocks.")] = 4,
    context: Annotated[int, typer.Option(help="Tokens that the model reads at once.")] = 128,
    pairs: Annotated[bool, typer.Option("--pairs", help="Byte pairs instead of characters.")] = False,
    watch: Annotated[int | None, typer.Option(help="Measure the perplexity every this many steps.")] = None,
    seed: Seed = 0,
) -> None:
    """Train on nine tenths of a text, and say how surprising the rest is, next to a trigram model."""
    import jax

    from measureformer import text
    from measureformer.text.corpus import documentation
    from measureformer.training import Architecture, use_cores
    from measureformer.training.optimization import Optimization

    use_cores()
    found = text.train_text(
        documentation() if file is None else text.read_text(file),
        jax.random.key(seed),
        architecture=Architecture(width=width, layers=layers, heads=4 if width % 4 == 0 else 1),
        context=context,
        tokenizer="byte pairs" if pairs else "characters",
        optimization=Optimization(steps=steps, batch=16, rate=2e-3),
        watch=watch,
        save=save,
    )
    typer.echo(f"{found.text_model.model.parameters} parameters")
    for step, value in zip(found.records.get("step", ()), found.records.get("perplexity", ()), strict=True):
        typer.echo(f"{int(step):8} steps: perplexity {value:.3f}")
    typer.echo(f"held-out perplexity {found.perplexity:.3f}; of a trigram model {found.trigram:.3f}")
    typer.echo(f"Next: measureformer text generate {save}")


@app.command()
def generate(
    folder: Annotated[Path, typer.Argument(help="Folder of a training.")] = Path("text"),
    prompt: Annotated[str | None, typer.Option(help="What the text begins with; a word that the model knows.")] = None,
    length: Annotated[int, typer.Option(help="Tokens to write.")] = 400,
    temperature: Annotated[float, typer.Option(help="0 takes the most probable token; 1 draws.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Draw among this many most probable tokens.")] = None,
    seed: Seed = 0,
) -> None:
    """Print the prompt and what the model writes after it."""
    import jax

    from measureformer import text

    model, key = text.load_text(folder), jax.random.key(seed)
    prompt = _first(model.tokenizer) if prompt is None else prompt
    written = text.generate(model, prompt, key, length=length, temperature=temperature, top_k=top_k)
    typer.echo(prompt + written)


def _first(tokenizer: Any) -> str:
    """Words to begin with, of which a model of characters may not know all letters."""
    for word in ("The ", "the ", " "):
        with suppress(TextError):
            if len(tokenizer.encode(word)):
                return word
    return tokenizer.decode([0])
