"""The command line: one file per command, put together here.

Only Typer is imported at once; JAX, Rich and the report are loaded by the commands that need them, so that help is
quick. On a terminal there are colours and a progress bar, elsewhere plain lines.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup

from measureformer import __version__
from measureformer.cli import (
    archive,
    atlas,
    check,
    claims,
    diff,
    explore,
    incontext,
    launch,
    lens,
    memory,
    text,
    version,
)
from measureformer.cli.output import complain
from measureformer.errors import MeasureformerError

REFUSED, INTERRUPTED = 2, 130
"""Exit codes for every command: it could not be carried out · Ctrl-C."""

_INTRODUCTION = """\
measureformer {version}: a layer is a function of a measure and a point; applying it is a push-forward.

What to type next:
  measureformer claims           list the statements of the theory that can be checked
  measureformer check NAME       check one of them against its controls, in seconds
  measureformer atlas --quick    check all of them and write atlas/index.html
  measureformer diff OLD NEW     show what changed between two atlases
  measureformer memory FOLDER    recall your own pictures from halves of them
  measureformer lens [PATH]      measure a pretrained transformer on a text; defaults to the bundled model
  measureformer incontext train  train a model to learn from its prompt, and compare it with classical learners
  measureformer text train       train a small language model on a text, and let it write
  measureformer explore          drag tokens, draw functions and digits, in the browser
  measureformer --help           everything else
"""


class _Commands(TyperGroup):
    """Refusals become one message and exit code 2, Ctrl-C a sentence and exit code 130, for every command."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MeasureformerError as refusal:
            complain(f"measureformer: {refusal}")
            raise typer.Exit(REFUSED) from None
        except KeyboardInterrupt:
            complain("Interrupted; nothing that was finished is lost.")
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=_Commands,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def introduce(context: typer.Context) -> None:
    """Transformers as maps between measures: check the claims of the theory, each against its controls."""
    if context.invoked_subcommand is None:
        typer.echo(_INTRODUCTION.format(version=__version__), nl=False)


for command in (claims.claims, check.check, atlas.atlas, diff.diff, archive.archive):
    app.command()(command)
# what follows the name of the script belongs to the script
app.command(context_settings={"allow_interspersed_args": False})(launch.launch)
for command in (memory.memory, lens.lens, explore.explore, version.version):
    app.command()(command)
app.add_typer(incontext.app, name="incontext")
app.add_typer(text.app, name="text")


def main() -> None:
    """Entry point of the command `measureformer`."""
    for stream in (sys.stdout, sys.stderr):
        # a terminal that cannot show a character shows a question mark instead of ending the run
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app(prog_name="measureformer")
