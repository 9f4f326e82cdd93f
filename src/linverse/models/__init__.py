"""Learned energies: the backbone, the embedding of Σ, and the parameterisations of U."""
