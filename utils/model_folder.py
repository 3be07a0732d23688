"""What is looked at in a model that may be somebody else's, by policies and by specialists.

A function returns what is wrong, or None; its caller names the setting.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def describe_danger(config: Any, folder: str) -> str | None:
    """Return what in a config would run code of a hub repository, or in an index of weights would read other files."""
    parts = [config]
    for part in parts:  # grows
        parts += [one for name in getattr(part, "sub_configs", ()) if (one := getattr(part, name, None)) is not None]
        named = getattr(part, "_attn_implementation", None)
        if any("/" in str(name) for name in (named.values() if isinstance(named, dict) else (named,))):
            problem = f"its config.json has attn_implementation = {named!r:.80}, which is code of a hub repository"
            return f"{problem}; allowed: one that is part of transformers (eager, sdpa)"
    for path in sorted(Path(folder).glob("*.index.json")):
        kind = Path(path.name.removesuffix(".index.json")).suffix
        for name in map(str, json.loads(path.read_bytes())["weight_map"].values()):
            if Path(name).name != name or Path(name).suffix != kind:
                return f"its {path.name} names {name!r:.80}; allowed: files {kind} in its folder"
    return None


def describe_tokens(config: Any, tokenizer: Any, get_embedding: Callable[[], Any]) -> str | None:
    """Return that a tokenizer has tokens without a row in the embedding, which is asked if the config has too few."""
    rows = getattr(config.get_text_config(decoder=True), "vocab_size", None)
    largest = max(tokenizer.get_vocab().values())
    if rows is None or largest < rows or largest < (rows := get_embedding().num_embeddings):
        return None
    problem = f"its tokenizer has tokens up to {largest}, its embedding {rows} rows (config.json: vocab_size)"
    return f"{problem}; allowed: the tokenizer it was trained with, or weights after model.resize_token_embeddings"


def take_template(processor: Any) -> None:
    """Give a processor without a chat template that of its tokenizer, and of several the one named "default"."""
    template = processor.chat_template or getattr(processor.tokenizer, "chat_template", None)
    processor.chat_template = template.get("default") if isinstance(template, dict) else template
