"""Learned energies U_θ(y, Σ): what a network adds to a Gaussian base, or the paper's inner product."""
