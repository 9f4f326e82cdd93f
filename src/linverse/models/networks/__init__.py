"""Backbones: networks that map images and maps of the noise to images."""
