"""Regularity: how much attention stretches distances between measures."""
