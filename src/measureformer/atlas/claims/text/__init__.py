"""Text: models of language, from counts to transformers."""
