"""Transport: Wasserstein distances and their extensions."""
