"""Specialist tools that run a HuggingFace model: one file a kind.

`registry.py` names these modules; one is imported when a config names its kind, and torch only when a
model is loaded. What needs no torch (the registry, the batching of calls) is in `viewbox.tools.specialists`.
"""
