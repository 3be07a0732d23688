"""Logs of inspect-ai in its JSON form, which its own reader and viewer open."""

import json
import os
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from ...core.messages import to_openai_messages
from ...errors import ConfigError
from ...records import Episode, Message
from ...utils.files import open_regular, read_regular, read_unpacked
from ..store.lines import check_values

MAX_LOG = 2**30  # bytes of a log
ZSTD = 93  # the number of this way of packing
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)|[\[\]{},]', re.DOTALL)  # texts, and what stands between
CONVERT = "inspect log convert --to json --output-dir FOLDER FILE"
RECORD = "viewbox"


def build_sample(episode: Episode, number: int, messages: Sequence[Message], record: dict[str, Any]) -> dict[str, Any]:
    """Return the sample of an episode; every component of its score is a score, and `reward` is the total."""
    wire = [from_openai(message) for message in to_openai_messages(messages)]
    scores: dict[str, float | None] = {}
    if episode.scores is not None:
        scores = {"reward": episode.scores.total, **episode.scores.components}
    reference = episode.to_dict()["task"]["reference"]
    replies = [message.text for message in messages if message.role == "assistant"]
    return {
        "id": episode.task.id,
        "epoch": number,
        "input": next((message.text for message in messages if message.role == "user"), ""),
        "target": json.dumps(reference, ensure_ascii=False),
        "messages": wire,
        "output": {"model": episode.run_config.model_name, "choices": [], "completion": replies[-1] if replies else ""},
        "scores": {name: {"value": value} for name, value in scores.items() if value is not None},
        "metadata": {RECORD: record},
    }


def write_log(samples: Iterable[dict[str, Any]], task: str, model: str, out: Path) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    evaluation = {"created": now, "task": task, "dataset": {"name": task}, "model": model or "unknown", "config": {}}
    head = json.dumps({"version": 2, "status": "success", "eval": evaluation})
    with out.open("w", encoding="ascii") as file:
        file.write(head[:-1] + ', "samples": [')
        for number, sample in enumerate(samples):
            file.write((",\n" if number else "\n") + json.dumps(sample, allow_nan=False))
        file.write("]}\n")


def from_openai(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of the OpenAI chat interface as inspect-ai has it."""
    made = {"role": message["role"], "content": message["content"] or ""}  # native calls may stand alone
    if isinstance(made["content"], list):
        made["content"] = [
            {"type": "image", "image": part["image_url"]["url"]} if part["type"] == "image_url" else part
            for part in made["content"]
        ]
    if "reasoning_content" in message:
        thought = {"type": "reasoning", "reasoning": message["reasoning_content"]}
        made["content"] = [thought, {"type": "text", "text": made["content"]}]
    if "tool_calls" in message:
        calls = [(call["id"], call["function"]) for call in message["tool_calls"]]
        made["tool_calls"] = [
            {"id": name, "function": one["name"], "arguments": json.loads(one["arguments"]), "type": "function"}
            for name, one in calls
        ]
    if message["role"] == "tool":
        made |= {"tool_call_id": message.get("tool_call_id"), "function": message.get("name")}
    return made


def list_samples(file: Path) -> Iterator[tuple[str, Any, str]]:
    """Yield the samples of a log: place, content, and the reason if it cannot be read. Raise `ConfigError` if the file
    is no log. Raise `OSError` if it cannot be read."""
    with open_regular(file, limit=MAX_LOG) as opened:
        packed = opened.read(4) == b"PK\x03\x04"
    if packed:
        yield from _list_packed(file)
        return
    number = 0
    for number, sample in enumerate(_iter_items(read_regular(file, limit=MAX_LOG)), 1):
        yield f"sample {number}", *_parse(sample)
    if not number:
        raise ConfigError(f"{file}: has no samples in a list of that name; allowed: a log of inspect-ai", key="file")


def _iter_items(content: bytes) -> Iterator[bytes]:
    """Yield the items of the list `samples` of a JSON object, as they stand there: all at once take thirty times as
    many bytes."""
    depth, key, start = 0, b"", -1
    for token in _TOKEN.finditer(content):
        mark = content[token.start() : token.start() + 1]
        if mark == b'"':
            key = token[0] if depth == 1 else key
            continue
        if mark in b"[{":
            depth += 1
            start = token.end() if depth == 2 and mark == b"[" and key == b'"samples"' else start
            continue
        if depth == 2 and start >= 0:
            if item := content[start : token.start()].strip():
                yield item
            start = token.end() if mark == b"," else -1
        depth -= mark in b"]}"
    if start >= 0 and (item := content[start:].strip()):  # cut short
        yield item


def _parse(content: bytes) -> tuple[Any, str]:
    """Return a sample, and the reason if it cannot be read."""
    try:
        check_values(content)
        return json.loads(content), ""
    except (ValueError, RecursionError) as error:
        return None, f"cannot be read ({error!s:.200})"


def _list_packed(file: Path) -> Iterator[tuple[str, Any, str]]:
    try:
        with open_regular(file, limit=MAX_LOG) as opened, zipfile.ZipFile(opened) as archive:
            for info in archive.infolist():
                if not info.filename.startswith("samples/"):
                    continue
                try:
                    with _open_zstd(file, opened, info) if info.compress_type == ZSTD else archive.open(info) as packed:
                        content = read_unpacked(packed, info.compress_size)
                except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
                    yield info.filename, None, f"cannot be read ({error})"
                else:
                    yield info.filename, *_parse(content)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ConfigError(f"{file}: a damaged log ({error})", key="file") from error


def _open_zstd(file: Path, opened: BinaryIO, info: zipfile.ZipInfo) -> Any:
    """Open a member that `zipfile` cannot unpack."""
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigError(f"{file}: needs pyarrow to unpack zstd; or convert it: {CONVERT}", key="file") from error
    opened.seek(info.header_offset + 26)
    opened.seek(sum(struct.unpack("<HH", opened.read(4))), os.SEEK_CUR)  # its name and extra field
    return pyarrow.CompressedInputStream(pyarrow.BufferReader(opened.read(info.compress_size)), "zstd")


def to_openai(sample: dict[str, Any], not_held: Counter[str]) -> list[dict[str, object]]:
    """Return the messages of a sample in the form of the OpenAI chat interface; raise what bad input raises."""
    attachments = sample.get("attachments") or {}
    made: list[dict[str, object]] = []
    written: Any = sample["messages"] or sample.get("input") or ()  # of a sample that failed at once
    messages: list[Any] = [{"role": "user", "content": written}] if isinstance(written, str) else written
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        blocks = []
        for part in parts:
            kind = str(part.get("type"))
            key = "summary" if kind == "reasoning" and part.get("redacted") else kind
            if kind in ("text", "image", "reasoning"):
                held = "image" if kind == "image" else "text"
                blocks.append({"type": kind, held: _resolve(part.get(key), attachments)})
            else:
                not_held[f"parts of type {kind[:40]!r}"] += 1
        entry = {"role": message["role"], "content": blocks}
        if message.get("tool_calls"):
            entry["tool_calls"] = [
                {"id": call.get("id"), "function": {"name": call.get("function"), "arguments": call.get("arguments")}}
                for call in message["tool_calls"]
            ]
        if message["role"] == "tool":
            entry |= {"tool_call_id": message.get("tool_call_id"), "name": message.get("function")}
        made.append(entry)
    return made


def _resolve(value: Any, attachments: dict[str, Any]) -> Any:
    """Long texts and images stand beside the messages, under a name."""
    scheme = "attachment://"
    return attachments.get(value.removeprefix(scheme)) if isinstance(value, str) and value.startswith(scheme) else value
