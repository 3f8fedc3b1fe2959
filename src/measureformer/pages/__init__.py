"""Self-contained HTML pages, shared by the atlas and the lens."""
