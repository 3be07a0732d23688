"""Keeps bitsandbytes out of runs without `lora.quantize`: it asks the hub for code when it is imported.

peft and TRL import it wherever it is installed. From `hide_bitsandbytes` on they find none while they are imported, and
peft none for its layers until `find_bitsandbytes` is called.
"""

import sys
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

NAME = "bitsandbytes"


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: object = None) -> ModuleSpec | None:
        if name not in ("peft", "trl.generation.vllm_generation") or NAME in sys.modules:
            return None
        spec: Any = PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader.exec_module = partial(_execute_without, spec.loader.exec_module)
        return spec  # type: ignore[no-any-return]


def _execute_without(execute: Any, module: Any) -> None:
    from transformers.utils import is_bitsandbytes_available

    is_bitsandbytes_available.cache_clear()
    sys.modules[NAME] = None  # type: ignore[assignment]
    try:
        execute(module)
        if module.__name__ == "peft":
            module.import_utils.is_bnb_4bit_available()  # remembers that there is none
    finally:
        del sys.modules[NAME]
        is_bitsandbytes_available.cache_clear()


def hide_bitsandbytes() -> None:
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def find_bitsandbytes() -> None:
    """Let peft look for bitsandbytes again."""
    from peft import import_utils

    import_utils.is_bnb_available.cache_clear()
    import_utils.is_bnb_4bit_available.cache_clear()
