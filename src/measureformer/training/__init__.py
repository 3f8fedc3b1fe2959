"""Training of anything by gradients: one loop, one way to save it and to go on."""
