"""`python -m viewbox.cli`: the `viewbox` command."""

from viewbox.cli.app import main

main()
