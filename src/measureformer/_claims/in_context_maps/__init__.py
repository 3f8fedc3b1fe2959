"""In-context maps: what a layer may see of a measure, and how layers compose."""
