"""Measures: what a prompt is, and what prompts tend to."""
