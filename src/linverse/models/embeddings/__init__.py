"""Σ as maps that a backbone can be told."""
