"""Keeps bitsandbytes out of runs without `lora.quantize`: it asks the hub for code when it is imported.

peft and TRL import it wherever it is installed. From `hide_bitsandbytes` on they find none while they are imported, and
peft none for its layers until `find_bitsandbytes` is called.
"""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

NAME = "bitsandbytes"


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: object = None) -> ModuleSpec | None:
        if name not in ("peft", "trl.generation.vllm_generation") or NAME in sys.modules:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = _hide(spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def _hide(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def execute_without(module: Any) -> None:
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

    return execute_without


def hide_bitsandbytes() -> None:
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def find_bitsandbytes() -> None:
    """Let peft look for bitsandbytes again."""
    from peft import import_utils

    import_utils.is_bnb_available.cache_clear()
    import_utils.is_bnb_4bit_available.cache_clear()
