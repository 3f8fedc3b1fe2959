"""Figures of the last full run in `docs/reliability.md`: each program writes its own marked block.

<!-- figures: NAME -->
…
<!-- end -->
"""

from __future__ import annotations

import re
from pathlib import Path

from measureformer.storage.files import write_atomically

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"


def write_block(name: str, text: str, page: Path = PAGE) -> None:
    """Replace what stands in the block of this name, which must occur once."""
    found, times = re.subn(
        rf"(<!-- figures: {re.escape(name)} -->\n).*?(<!-- end -->)",
        lambda block: f"{block[1]}{text.strip()}\n{block[2]}",
        page.read_text("utf-8"),
        flags=re.DOTALL,
    )
    if times != 1:
        raise SystemExit(f"{page.name} has {times} blocks 'figures: {name}', and needs one")
    write_atomically(page, found.encode())
