"""The YAML configs of runs, and what reads them: `schema.load` gives a checked `schema.Config`.

`yaml_reader` reads YAML and `key=value`; `validation` words every mistake and lists renamed settings (`RENAMED`).
"""
