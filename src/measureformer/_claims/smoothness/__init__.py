"""Smoothness: how much attention stretches distances between measures."""
