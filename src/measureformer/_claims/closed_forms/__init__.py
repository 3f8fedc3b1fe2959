"""Closed forms: attention on Gaussians and mixtures, without a single token."""
