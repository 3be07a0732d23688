"""`python -m viewbox`: the `viewbox` command."""

from .cli.app import main

main()
