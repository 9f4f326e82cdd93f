"""`python -m linverse` (and `accelerate launch -m linverse`)."""

from linverse.cli import main

main()
