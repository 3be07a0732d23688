"""`python -m viewbox`: the `viewbox` command."""

from viewbox.cli.app import main

main()
