"""Models as things that are kept: folders, cards, held-out images, the hub, and the bundled ones."""
