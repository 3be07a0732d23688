"""The YAML configs of runs, and the code that reads them: `schema.load` returns a checked `schema.Config`.

`yaml_reader` reads YAML and `key=value`; `validation` words error messages.
"""
