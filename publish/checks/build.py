"""Builds the wheel of a project: `python build.py FOLDER`, from the folder of the project; a program, not a module."""

import sys
import tomllib
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    to = sys.argv[1]  # a build backend may change it
    build = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8")).get("build-system", {})
    sys.path[:0] = [str(Path(folder).resolve()) for folder in build.get("backend-path", ())]
    module, _, attribute = build.get("build-backend", "setuptools.build_meta:__legacy__").partition(":")
    backend = import_module(module)
    for part in filter(None, attribute.split(".")):
        backend = getattr(backend, part)
    backend.build_wheel(to)
