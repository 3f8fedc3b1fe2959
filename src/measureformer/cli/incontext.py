"""`measureformer incontext`: train a model to learn in context, and measure how well it does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from measureformer.errors import OptionError

app = typer.Typer(
    no_args_is_help=True, help="In-context learning: train a model on a task, compare it with classical learners."
)

PRESETS = {"minutes": (12_000, 64, 2e-3), "hour": (80_000, 64, 2e-3)}
"""Name ↦ steps, prompts in each, and rate."""

Save = Annotated[Path, typer.Option(help="Folder of the training; rerunning the command resumes it.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]


@app.command()
def train(
    task: Annotated[
        str, typer.Option(help="linear, noisy, sparse, quadratic, tree, net, classification, dynamics.")
    ] = ("linear"),
    dim: Annotated[int, typer.Option(help="Dimension of the inputs.")] = 5,
    points: Annotated[int, typer.Option(help="Examples in a prompt.")] = 11,
    reading: Annotated[str, typer.Option(help='How a prompt is read: "sequence" or "measure".')] = "sequence",
    preset: Annotated[str, typer.Option(help='"minutes" or "hour".')] = "minutes",
    steps: Annotated[int | None, typer.Option(help="Number of steps (overrides the preset).")] = None,
    width: Annotated[int, typer.Option(help="Dimension of the tokens.")] = 64,
    layers: Annotated[int, typer.Option(help="Blocks, each with two heads.")] = 3,
    watch: Annotated[int | None, typer.Option(help="Measure the model every this many steps.")] = None,
    save: Save = Path("incontext"),
    seed: Seed = 0,
) -> None:
    """Train a transformer (150,000 parameters by default) on fresh prompts. Rerun the command to resume."""
    import jax

    from measureformer.incontext import InContextModel, train_learner
    from measureformer.training import Architecture, use_cores
    from measureformer.training.optimization import Optimization

    use_cores()
    chosen, law = _chosen(preset, PRESETS, "preset"), _task(task, dim)
    count, batch, rate = chosen if steps is None else (steps, *chosen[1:])
    with_positions = points if reading == "sequence" else None
    model: Any = InContextModel.random(
        jax.random.key(seed),
        dim,
        Architecture(width=width, layers=layers),
        points=with_positions,
        reading=reading,  # pyright: ignore[reportArgumentType]
    )
    typer.echo(f"{model.parameters} parameters, {count} steps of {batch} prompts")
    settings = Optimization(steps=count, batch=batch, rate=rate)
    key = jax.random.key(seed + 1)
    found = train_learner(law, model, key, points=points, optimization=settings, watch=watch, save=save)
    typer.echo(f"loss {found.losses[0]:.3g} at first, {found.losses[-100:].mean():.3g} at the end")
    typer.echo(f"Next: measureformer incontext evaluate {save} --task {task}")


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(help="Folder of a training.")] = Path("incontext"),
    task: Annotated[str, typer.Option(help="As in training, or another one.")] = "linear",
    points: Annotated[int, typer.Option(help="Examples in a prompt.")] = 11,
    prompts: Annotated[int, typer.Option(help="Fresh prompts to average over.")] = 1280,
    shifted: Annotated[bool, typer.Option("--shifted", help="Also on prompts unlike those of training.")] = False,
    figure: Annotated[
        Path | None, typer.Option(help="SVG file for the errors; records of --watch are drawn beside it.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Print the error after every number of examples, next to least squares and others."""
    import jax

    from measureformer.incontext import baselines, epsilon, error_curve, load_learner
    from measureformer.incontext.shifted import ORTHOGONAL
    from measureformer.incontext.tasks import shifted as variants

    model, key = load_learner(folder), jax.random.key(seed)
    law: Any = _task(task, model.dim)
    others = variants(law) if shifted else {}
    learners: dict[str, Any] = {
        "model": model,
        "least squares": baselines.least_squares,
        "averaging": baselines.averaging,
        "3 nearest": baselines.nearest(3),
    }
    curves = {name: error_curve(one, law, key, points=points, prompts=prompts) for name, one in learners.items()}
    typer.echo("examples  " + "  ".join(f"{name:>13}" for name in curves))
    for k in range(points):
        typer.echo(f"{k:8}  " + "  ".join(f"{curve.error[k]:13.4f}" for curve in curves.values()))
    last = curves["model"]
    typer.echo(
        f"ε after {points - 1} examples: {last.error[-1]:.4f}, 90 % within {last.low[-1]:.4f} to {last.high[-1]:.4f}"
    )
    for name, other in others.items():
        # what is orthogonal to d examples is 0: nothing is asked any more
        examples = min(points - 1, model.dim - 1) if name == ORTHOGONAL else points - 1
        if examples > 0:
            found = epsilon(model, other, key, examples=examples, prompts=prompts)
            after = "" if examples == points - 1 else f" after {examples} examples"
            typer.echo(f"{name:18} {found.value:.4f}{after}")
    if figure is not None:
        from measureformer.cli.learning_figures import draw_errors, draw_training
        from measureformer.storage.folder import read_records

        for file in (draw_errors(curves, figure), draw_training(read_records(folder), figure)):
            typer.echo(f"drawn in {file}" if file else "training was not watched: see incontext train --watch")


def _task(name: str, dim: int) -> Any:
    from measureformer.incontext.tasks import NAMED

    return _chosen(name, NAMED, "task")(dim)


def _chosen(name: str, known: dict[str, Any], what: str) -> Any:
    if name not in known:
        raise OptionError(got=f"{what} {name!r}", need=f"one of {', '.join(known)}", do="Choose one of these.")
    return known[name]
