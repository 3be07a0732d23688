"""`python -m viewbox`: the `viewbox` command."""

from .cli.commands import main

main()
