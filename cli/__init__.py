"""The `viewbox` command: `app.COMMANDS` is the table of its commands, and `app.main` the entry point.

`commands` builds a command from a function and prints tables; `figures` shows the results of functions in other rooms.
"""
