"""Claims on attention in low dimension by a grid: certificates, relative errors, growth, prefixes in time."""
