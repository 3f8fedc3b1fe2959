"""Real pretrained transformers."""
