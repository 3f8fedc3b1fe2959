"""In-context maps: what a layer may see of a measure, how layers compose, and closed forms."""
