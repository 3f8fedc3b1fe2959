"""Implicit bias: what training makes of attention."""
