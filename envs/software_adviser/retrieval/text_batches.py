"""Texts on their way to a model: tokenized, and computed together with texts of the same length only.

Without padding a text has the same result whatever stands beside it in a batch.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ....errors import ToolError, ToolFault
from ....tools.specialists.calls import TextRequest
from ....tools.specialists.models.model import ModelRunner
from ....tools.specialists.serving import ModelServer

MAX_TOKENS = 512  # of a text, or a query and a text; the end of a longer one is cut off
MAX_CHARS = 20_000  # of a text that are tokenized


def encode_texts(runner: ModelRunner, texts: Sequence[tuple[str, ...]]) -> Iterator[tuple[list[int], Any]]:
    """(places in `texts`, tensors on the model's device) for each length in tokens.

    Args:
        runner: whose processor is a tokenizer.
        texts: of each request, one text or a query and a text.
    """
    length = min(MAX_TOKENS, runner.processor.model_max_length)
    positions = getattr(runner.config, "max_position_embeddings", None)
    if positions:  # RoBERTa counts from 2
        length = min(length, positions - (2 if "roberta" in runner.config.model_type else 0))
    encoded = [
        runner.processor(*(one[:MAX_CHARS] for one in pair), truncation=True, max_length=length) for pair in texts
    ]
    groups: dict[int, list[int]] = {}
    for place, one in enumerate(encoded):
        groups.setdefault(len(one["input_ids"]), []).append(place)
    for places in groups.values():
        batch = runner.processor.pad([encoded[place] for place in places], return_tensors="pt")
        yield places, batch.to(runner.device)


def ask_texts(server: ModelServer, texts: Sequence[tuple[str, ...]]) -> list[Any]:
    """One result for each; called in a thread. Raises `ToolFault` if the model failed on one of them."""
    order = sorted(range(len(texts)), key=lambda place: sum(map(len, texts[place])))  # batches of about one length
    futures = {place: server.submit(TextRequest(texts[place])) for place in order}
    try:
        return [futures[place].result() for place in range(len(texts))]
    except (ToolError, ToolFault) as error:
        raise ToolFault(f"the search failed: its model {error}") from error
