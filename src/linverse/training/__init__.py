"""Training: losses, batches, the loop, normalisation and self-tests, presets."""
