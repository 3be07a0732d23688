"""Episodes that other tools recorded, as a run that can be viewed and scored.

Nothing in the file is trusted: no address is fetched, no file outside its folder is opened, and a bad row costs itself.
"""

import base64
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

from msgspec.structs import force_setattr, replace

from ...core.messages import to_openai_messages
from ...errors import ConfigError, ImageError, StoreError, describe_unknown
from ...images.files import open_picture
from ...images.ref import ImageRef
from ...records import EndReason, Episode, Message, RunConfig, Scores, Task
from ...utils.files import create_whole
from ..store.layout import IMPORTED, iter_image_dicts, iter_images
from ..store.lines import parse_line
from ..store.writer import EpisodeWriter, UnstorableError
from .chat_rows import OpenPicture, RowFormat, find_folder, list_lines, read_chat_row, read_message
from .conversation import build_turns, list_messages
from .inspect_log import RECORD, list_samples, to_openai
from .parquet import list_rows
from .selection import SelectionReport

HELD = {"id", "epoch", "input", "target", "messages", "output", "scores", "metadata", "error", "limit", "attachments"}
LIMITS: dict[str, EndReason] = {"token": "max_tokens", "time": "timeout", "working": "timeout", "operator": "cancelled"}
BAD = (StoreError, ImageError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)


def import_file(file: str | Path, source: str, out: str | Path) -> SelectionReport:
    """Write the episodes of a file as a new run, whole or not at all. Raise `ConfigError` if the source is unknown, no
    row of the file can be read, or `out` exists."""
    if source not in SOURCES:
        raise ConfigError(describe_unknown("source", source, SOURCES), key="from")
    file, report = Path(file), SelectionReport(str(out))
    list_rows, build = SOURCES[source]
    with create_whole(out) as draft:
        try:
            with EpisodeWriter(draft / "episodes") as writer:
                for number, row in enumerate(list_rows(file)):
                    try:
                        if row.problem:
                            raise StoreError(row.problem)
                        writer.append(build(row.given, number, file, report))
                        report.kept += 1
                    except UnstorableError as error:
                        report.add_broken(f"{file}, {row.place}", str(error).partition("was not stored: ")[2])
                    except BAD as error:
                        report.add_broken(f"{file}, {row.place}", _explain(error, source))
            report.check_any()
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read ({error.strerror or error})", key="file") from error
    return report


def _explain(error: Exception, source: str) -> str:
    """Return the reason for a bad row. Those that Python found say little without the tool whose form was expected."""
    if isinstance(error, StoreError | ImageError) or type(error) is ValueError:
        return str(error)
    return f"not as {source} writes it ({type(error).__name__}: {error})"


def _list_traces(file: Path) -> Iterator[RowFormat]:
    for row in list_lines(file):
        traces = row.given.get("traces", [row.given]) if row.given is not None else None
        if not isinstance(traces, list):
            yield row if row.problem else RowFormat(row.place, None, '"traces" is not a list')
            continue
        for number, trace in enumerate(traces, 1):
            yield RowFormat(row.place if len(traces) == 1 else f"{row.place}, trace {number}", trace)


def _build_openai(row: Any, number: int, file: Path, report: SelectionReport) -> Episode:
    if "custom_id" in row and "messages" not in row:
        raise StoreError(
            'a line of a batch; allowed: {"messages": […]}, those of its request and the reply, joined by custom_id'
        )
    read = read_chat_row(row, _open_beside(file))
    messages, record, score = read.messages, row.get(RECORD), row.get("score")
    expected = {"id", "reference"} if record is None else set()
    expected |= {"score"} if record is None and isinstance(score, int | float) else set()
    unread = [name for name in read.unread if name not in expected]
    for name in (*unread, *["tools"] * bool(read.tools), *["weight of a reply"] * bool(read.skipped)):
        report.not_held[f"field {name[:80]!r}"] += 1
    if record is not None:
        return _restore(record, messages, report)
    reference, scores = row.get("reference"), Scores(float(score)) if isinstance(score, int | float) else None
    reference = reference if isinstance(reference, Mapping | None) else {"reference": reference}
    identity = f"{file.name}:{number + 1}" if row.get("id") is None else str(row["id"])
    return _build_episode(messages, identity, scores, reference)


def _build_trace(trace: Any, number: int, file: Path, report: SelectionReport) -> Episode:
    if "nodes" not in trace:
        raise StoreError('no "nodes", as in an older results.jsonl; allowed: traces.jsonl, as verifiers 0.4 writes it')
    nodes = [{**node, "message": _nest_calls(node["message"])} for node in trace["nodes"]]
    scores = _read_rewards(trace)
    record = (trace.get("info") or {}).get(RECORD)
    if len(_find_branch(nodes)) < len(nodes):
        report.not_held["messages beside the last branch"] += 1
    if trace.get("errors"):
        report.not_held["errors of a trace"] += 1
    if record is None:
        data = trace["task"].get("data") or {}
        messages = _read_messages([node["message"] for node in _find_branch(nodes)], file)
        identity = data.get("id") or data.get("idx") or f"{file.name}:{number + 1}"
        return _build_episode(messages, str(identity), scores, end="error" if trace.get("errors") else None)
    shown = _read_messages([node["message"] for node in nodes], file) if nodes else []
    episode = _restore(record, shown, report, compare=False)
    is_same = episode.scores is not None and scores is not None and episode.scores.total == scores.total
    return episode if is_same else replace(episode, scores=scores)


def _nest_calls(message: Any) -> Any:
    """Return a message with its calls as OpenAI writes them, where verifiers has name and arguments beside the id."""
    calls = message.get("tool_calls") or []
    return {**message, "tool_calls": [call if "function" in call else {**call, "function": call} for call in calls]}


def _find_branch(nodes: Sequence[Any]) -> list[Any]:
    """Return the nodes from the root to the last leaf."""
    branch: list[Any] = []
    place: int | None = len(nodes) - 1
    while place is not None and 0 <= place < len(nodes) and len(branch) <= len(nodes):
        branch.append(nodes[place])
        parent = nodes[place].get("parent")
        if parent is not None and not (type(parent) is int and 0 <= parent < place):
            raise StoreError(f"the parent of a node is {parent!r:.80}; allowed: an earlier node")
        place = parent
    return branch[::-1]


def _read_rewards(trace: Any) -> Scores | None:
    rewards, metrics = trace.get("rewards") or {}, trace.get("metrics") or {}
    if not rewards and not metrics:
        return None
    values = [None if one is None else one["score"] * one.get("weight", 1.0) for one in rewards.values()]
    parts = {name: None if one is None else one["score"] for name, one in rewards.items()} if len(rewards) > 1 else {}
    known = [value for value in values if value is not None]
    total = float(sum(known)) if values and len(known) == len(values) else None
    return Scores(total, {**parts, **metrics})


def list_table(file: Path, needed: Collection[str] = ()) -> Iterator[RowFormat]:
    """Yield the rows of a Parquet file; raise `ConfigError` if it is none, or lacks a column that is needed."""
    yield from (RowFormat(f"row {number}", row) for number, row in enumerate(list_rows(file, needed), 1))


def _build_exported(row: Any, number: int, file: Path, report: SelectionReport) -> Episode:
    """Return the episode of a row that viewbox exported; its pictures are found by the hashes of their pixels."""
    encoded = [base64.b64encode(image["bytes"]).decode() for image in row["images"] or ()]
    parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}} for picture in encoded]
    messages = _read_messages([{"role": "user", "content": parts}], file) if parts else []
    return _restore(parse_line(row["record"].encode()), messages, report, compare=False)


def _build_sample(sample: Any, number: int, file: Path, report: SelectionReport) -> Episode:
    messages = _read_messages(to_openai(sample, report.not_held), file)
    scores = sample.get("scores") or {}
    values = {name: score["value"] for name, score in scores.items()}
    held = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
    held |= {name: float(value == "C") for name, value in values.items() if value in ("C", "I")}
    report.not_held["scores that are no numbers"] += len(values) - len(held)
    metadata = sample.get("metadata") or {}
    record = metadata.get(RECORD)
    if record is not None:
        return _restore(record, messages, report)
    report.not_held["settings of the log: its task, dataset and config"] += not number
    for name in sorted(set(sample) - HELD):
        report.not_held[f"{name[:80]!r} of a sample"] += bool(sample[name])
    for name in sorted({name for score in scores.values() for name in score if score[name]} - {"value"}):
        report.not_held[f"{name[:80]!r} of a score"] += 1
    total = held.get("reward", next(iter(held.values()), None))
    target = sample.get("target")
    stored = Scores(total, {name: value for name, value in held.items() if name != "reward"}) if held else None
    info = {"sample": max(0, int(sample.get("epoch") or 1) - 1), "metadata": metadata}
    model = RunConfig(model_name=str((sample.get("output") or {}).get("model") or ""))
    failure, limit = sample.get("error"), (sample.get("limit") or {}).get("type")
    end = LIMITS.get(limit, "max_turns") if limit else None
    if failure:
        end, info["error"] = "error", str(failure.get("message") if isinstance(failure, dict) else failure)
    identity, reference = str(sample.get("id")), {"target": target}
    return replace(_build_episode(messages, identity, stored, reference, end=end, info=info), run_config=model)


def _open_beside(file: Path) -> OpenPicture:
    return lambda where: ImageRef.of(open_picture(where, find_folder(where, file.parent)))


def _read_messages(given: Any, file: Path) -> list[Message]:
    if not isinstance(given, list) or not given:
        raise StoreError('allowed: an object with a list of "messages"')
    return [read_message(message, _open_beside(file)) for message in given]


def _build_episode(
    messages: Sequence[Message],
    task: str,
    scores: Scores | None,
    reference: Mapping[str, Any] | None = None,
    *,
    end: EndReason | None = None,
    info: Mapping[str, Any] = {},
) -> Episode:
    """`end`: why it stopped; None: its last message says it."""
    system, turns = build_turns(messages)
    images = next((turn.images for turn in turns if turn.role == "user"), ())
    answered = end is None and bool(turns) and turns[-1].role == "assistant"
    return Episode(
        Task(task, images, reference=reference or {}),
        turns,
        end_reason="answered" if answered else end or "max_turns",
        terminated=answered,
        truncated=not answered,
        scores=None if end == "error" else scores,
        environment=IMPORTED,
        system_prompt=system,
        info=info,
    )


def _restore(record: Any, messages: Sequence[Message], report: SelectionReport, compare: bool = True) -> Episode:
    """Return the episode that viewbox recorded, with the pictures of the messages.
    Pictures are found by the hash of their pixels, wherever the record says they are. If the messages are other ones
    than those of the record, somebody edited them: then they are the turns."""
    shown = {image.hash: image for message in messages for image in message.images}
    data = json.loads(json.dumps(record))
    originals = data["task"].get("images") or []
    data["task"]["images"] = [image for image in originals if image["hash"] in shown]
    if len(data["task"]["images"]) < len(originals):
        report.not_held["original images of tasks, which no message shows"] += 1
    if not compare:  # a call that failed at once left no message with its pictures
        report.not_held["pictures that no message shows"] += _drop_missing(data, set(shown))
    for image in iter_image_dicts(data):
        if image["hash"] not in shown:
            raise StoreError(f"image {str(image['hash'])[:12]!r} of the episode is in no message")
        picture = shown[image["hash"]]
        size = {"width": picture.width, "height": picture.height, "mode": picture.mode}
        image |= {"hash": picture.hash, **size, "uri": None}
    episode = Episode.from_dict(data)
    for ref in iter_images(episode):
        force_setattr(ref, "pixels", shown[ref.hash].pixels)  # nobody else has the episode yet
    if compare and to_openai_messages(list_messages(episode)) != to_openai_messages(messages):
        system, turns = build_turns(messages)
        report.not_held["the record of edited messages: how calls and results were read"] += 1
        return replace(episode, system_prompt=system, turns=turns)
    return episode


def _drop_missing(data: Any, shown: set[str]) -> int:
    """Take images whose pixels are missing out of the turns of a record; return how many."""
    dropped = 0
    for turn in data.get("turns") or ():
        held = [image for image in turn.get("images") or () if image["hash"] in shown]
        if len(held) < len(turn.get("images") or ()):
            dropped += len(turn["images"]) - len(held)
            turn |= {"images": held, "views": []}
        for result in turn.get("tool_results") or ():
            if result.get("image") is not None and result["image"]["hash"] not in shown:
                dropped += 1
                result |= {"image": None, "mime_type": None, "views": []}
    return dropped


Build = Callable[[Any, int, Path, SelectionReport], Episode]
SOURCES: dict[str, tuple[Callable[[Path], Iterator[RowFormat]], Build]] = {
    "verifiers": (_list_traces, _build_trace),
    "openai": (list_lines, _build_openai),
    "inspect": (lambda file: starmap(RowFormat, list_samples(file)), _build_sample),
    "parquet": (partial(list_table, needed=("record", "images")), _build_exported),
}
