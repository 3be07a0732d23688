"""`python -m viewbox.cli`: the `viewbox` command."""

from .app import main

main()
