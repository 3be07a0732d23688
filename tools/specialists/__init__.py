"""Specialist tools: models, functions and servers that a policy may ask, declared in YAML.

`spec.py` is the contract of a kind and its registry; every other file is a kind, or what kinds share. Kinds that run a
model with torch are in `viewbox.tools.specialists.models`.
"""

from .spec import Specialist, build_specialists, get_specialist_class, list_kinds, register_specialist

__all__ = ["Specialist", "build_specialists", "get_specialist_class", "list_kinds", "register_specialist"]
