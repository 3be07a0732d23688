"""The parts of what a tool of an MCP server returns."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_types import CallToolResult

MAX_BLOCKS = 256  # of a result


def split_content(result: "CallToolResult") -> tuple[list[str], list[str], int]:
    """(texts, pictures as Base64, how many other parts) of a result."""
    texts: list[str] = []
    images: list[str] = []
    for block in result.content[:MAX_BLOCKS]:
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "image":
            images.append(block.data)
    return texts, images, len(result.content) - len(texts) - len(images)


def repeats_facts(text: str, facts: Mapping[str, Any]) -> bool:
    """Whether a text is the JSON of the facts, as servers send it for clients that read texts only."""
    if not facts:
        return False
    try:
        return json.loads(text) in (facts, facts.get("result"))
    except (ValueError, RecursionError):
        return False
