"""Runs in the forms that other tools read: one row an episode."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...core.messages import to_openai_messages
from ...errors import ConfigError, ImageError, StoreError, describe_unknown
from ...images.ref import ImageRef
from ...records import Episode
from ...rewards.looks import read_looks
from ...utils.files import create_whole, fill_template
from ...utils.frozen import thaw
from ...utils.importing import import_hub
from ...utils.terminal import make_line
from ..scoring.restriction import find_restriction
from ..store.reader import EpisodeReader, load
from .conversation import list_messages, split_images
from .inspect_log import RECORD, build_sample, write_log
from .parquet import write_parquet
from .selection import EVERY, Choice, SelectionReport, select_episodes


def export_run(
    run: str | Path, to: str, out: str | Path, choice: Choice = EVERY, push: str | None = None
) -> SelectionReport:
    """Write a run in another form, whole or not at all; what cannot be read or said is counted in the report. `push` is
    the `owner/name` of a private dataset on the hub, for "parquet". Raise `ConfigError` if the form is unknown, a
    package is missing, `out` exists, or no episode is left."""
    if to not in FORMS:
        raise ConfigError(describe_unknown("form", to, [*FORMS, "verl"]), key="to")
    end, ending = Path(out).suffix.lower(), ENDINGS[to]
    if end in (*ENDINGS.values(), ".eval", ".csv") and end != ending:
        other = "".join(f", or --to {form}" for form in ("sft", "openai", "inspect") if ENDINGS[form] == end)
        way = f"a name with {ending}{other}"
        raise ConfigError(f"--out {str(out)!r}: --to {to} writes another kind of file; allowed: {way}", key="out")
    if push is not None and to != "parquet":
        raise ConfigError(f"--push goes with --to parquet; given --to {to}", key="push")
    report = SelectionReport(str(out))
    reader = load(run, errors="skip")
    if push is not None:
        check_push(Path(run), reader.folder, push)
    with create_whole(out) as draft:
        FORMS[to](reader, draft, choice, report)
        report.check_any()
    if push is not None:
        first = next(iter(reader), None)
        report.pushed = push_dataset(Path(out), push, first.environment if first else "", report)
    return report


def list_rows(
    reader: EpisodeReader, choice: Choice, report: SelectionReport, build: Callable[[Episode], dict[str, Any] | None]
) -> Iterator[dict[str, object]]:
    """Yield a row for each chosen episode; one that cannot be written costs itself, None is left to `build` to
    count."""
    for episode in select_episodes(reader, choice, report):
        try:
            row = build(episode)
        except (ImageError, StoreError, OSError, ValueError) as error:
            report.add_broken(f"line {reader.line}", error)
            continue
        if row is not None:
            report.kept += 1
            yield row


def encode_image(ref: ImageRef) -> dict[str, object]:
    """Return the image as a column with the feature `Image` holds it."""
    return {"bytes": ref.to_png(), "path": None}


def _write_openai(reader: EpisodeReader, out: Path, choice: Choice, report: SelectionReport) -> None:
    def build(episode: Episode) -> dict[str, Any]:
        messages = to_openai_messages(list_messages(episode))
        _count_lost(episode, report)
        return {"messages": messages, RECORD: episode.to_dict()}

    with out.open("w", encoding="utf-8") as file:
        for row in list_rows(reader, choice, report, build):
            file.write(json.dumps(row, ensure_ascii=True, allow_nan=False) + "\n")


def _write_inspect(reader: EpisodeReader, out: Path, choice: Choice, report: SelectionReport) -> None:
    counts: Counter[str] = Counter()

    def build(episode: Episode) -> dict[str, Any]:
        counts[episode.task.id] += 1
        _count_lost(episode, report)
        return build_sample(episode, counts[episode.task.id], list_messages(episode), episode.to_dict())

    first = next(iter(reader), None)
    task, model = (first.environment, first.run_config.model_name) if first else ("", "")
    write_log(list_rows(reader, choice, report, build), task or "viewbox", model, out)


def _build_row(episode: Episode) -> dict[str, Any]:
    messages, images = split_images(list_messages(episode))
    scores, looks = episode.scores, read_looks(episode)
    return {
        "task": episode.task.id,
        "environment": episode.environment,
        "images": [encode_image(image) for image in images],
        "messages": messages,
        "answer": _write_json(episode.answer),
        "reference": _write_json(episode.task.reference),
        "reward": None if scores is None else scores.total,
        "scores": _write_json(None if scores is None else scores.components),
        "end_reason": episode.end_reason,
        "verdict": looks.verdict,
        "looks": _write_json(looks.list_values() if looks.targets else None),
        "record": episode.to_json(),
    }


def _write_json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(thaw(value), ensure_ascii=False)


def _write_episodes(reader: EpisodeReader, out: Path, choice: Choice, report: SelectionReport) -> None:
    write_parquet(list_rows(reader, choice, report, _build_row), "episodes", out)


def _write_sft(reader: EpisodeReader, out: Path, choice: Choice, report: SelectionReport) -> None:
    def build(episode: Episode) -> dict[str, Any] | None:
        if episode.is_fault:  # its last reply is empty or cut, and would be learned
            report.left_out[FAULT] += 1
            return None
        messages, images = split_images(list_messages(episode))
        if not any(message["role"] == "assistant" for message in messages):
            report.skip("without a reply")
            return None
        return {"messages": messages, "images": [encode_image(image) for image in images]}

    write_parquet(list_rows(reader, choice, report, build), "sft", out)


def _count_lost(episode: Episode, report: SelectionReport) -> None:
    if episode.task.images:
        report.not_held["original images of tasks, unless a message shows them"] += 1


FORMS: dict[str, Callable[[EpisodeReader, Path, Choice, SelectionReport], object]] = {
    "parquet": _write_episodes,
    "sft": _write_sft,
    "openai": _write_openai,
    "inspect": _write_inspect,
}


ENDINGS = {**dict.fromkeys(("parquet", "sft"), ".parquet"), "openai": ".jsonl", "inspect": ".json"}
FAULT = "ended by a fault"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,90}/[A-Za-z0-9][\w.-]{0,90}", re.ASCII)


def check_push(run: Path, episodes: Path, name: str) -> None:
    """Raise `ConfigError` if a run must not be put on the hub, or the name is none."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"--push {name!r:.100}; allowed: owner/name", key="push")
    reason = find_restriction(run, episodes)
    if reason is not None:
        raise ConfigError(f"--push {name}: {reason}; its images and answers must not leave this machine", key="push")
    import_hub("push")


def push_dataset(file: Path, name: str, environment: str, report: SelectionReport) -> str:
    """Upload an exported Parquet file with a card; return the address. Raise `ConfigError` if the hub refuses, or
    cannot be reached. The exported file stays."""
    hub = import_hub("push")
    with TemporaryDirectory(prefix="viewbox-push-") as draft:
        (Path(draft) / "data").mkdir()
        shutil.copyfile(file, Path(draft) / "data" / "train-00000-of-00001.parquet")
        card = fill_template(
            Path(__file__).with_name("dataset_card.j2"),
            name=name.partition("/")[2],
            count=report.kept,
            environment=make_line(environment, 80),
        )
        (Path(draft) / "README.md").write_text(card, encoding="utf-8")
        try:
            api = hub.HfApi()
            url = api.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
            api.upload_folder(
                repo_id=name, repo_type="dataset", folder_path=draft, commit_message=f"{report.kept} episodes"
            )
        except (hub.errors.HfHubHTTPError, OSError, ValueError) as error:
            problem = f"{make_line(error, 300)}; the export stays in {file}"
            raise ConfigError(f"--push {name}: {problem}", key="push") from error
    return str(url)
