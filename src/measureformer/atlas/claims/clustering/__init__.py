"""Clustering: flows of Gaussians and of tokens, and where they end."""
