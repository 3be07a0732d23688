"""The `viewbox` command: one file a command, which parses options and prints; what it does lives in the other rooms.

`app.main` is the entry point. `progress` shows a rollout while it runs; `docs/` prints and draws pages of `docs/`.
"""
