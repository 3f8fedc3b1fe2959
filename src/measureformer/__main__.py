"""`python -m measureformer` is the command `measureformer`."""

from __future__ import annotations

import sys

from measureformer.errors import DependencyError, need


def main() -> None:
    """Run the command, or say which extra brings it."""
    try:
        for library in ("typer", "rich"):
            need(library, "cli")
    except DependencyError as missing:
        print(f"measureformer: {missing}", file=sys.stderr)
        sys.exit(2)
    from measureformer.cli import app

    app.main()


if __name__ == "__main__":
    main()
