"""Puts exported episodes on the Hugging Face hub as a private dataset with a card. Restricted data is refused."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from viewbox.errors import ConfigError
from viewbox.rollouts.exchange.selection import Report
from viewbox.rollouts.runs.pack import find_restriction
from viewbox.terminal import make_line

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,90}/[A-Za-z0-9][\w.-]{0,90}", re.ASCII)
_CARD = """---
tags: [viewbox]
configs:
- config_name: default
  data_files:
  - {{split: train, path: data/*.parquet}}
---
# {name}

{count} episodes of the environment `{environment}`, saved by viewbox: what a vision-language model was shown, what it
replied, which tools it called, and how it was scored.

| column | what it holds |
|---|---|
| `task`, `environment` | the task's id, the environment |
| `images`, `messages` | the conversation as the model saw it; each `image` part stands for the next of `images` |
| `answer`, `reference`, `scores` | JSON |
| `reward`, `end_reason` | the total, and how the episode ended |
| `record` | the whole episode as viewbox stores it |

`viewbox import FILE.parquet --from parquet --out RUN` makes a run of it again.
"""


def check_push(run: Path, episodes: Path, name: str) -> None:
    """Raise `ConfigError` if a run must not be put on the hub, or the name is none."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"--push {name!r:.100}; allowed: owner/name", key="push", given=name)
    reason = find_restriction(run, episodes)
    if reason is not None:
        raise ConfigError(f"--push {name}: {reason}; its images and answers must not leave this machine", key="push")
    _import_hub()


def push_dataset(folder: Path, name: str, environment: str, report: Report) -> str:
    """Upload an exported folder (`--to hf`) as one Parquet file with a card; returns the address.

    Raises:
        ConfigError: the hub refuses, or cannot be reached. The exported folder stays.
    """
    hub = _import_hub()
    import datasets

    with TemporaryDirectory(prefix="viewbox-push-") as draft:
        (Path(draft) / "data").mkdir()
        datasets.load_from_disk(str(folder)).to_parquet(str(Path(draft) / "data" / "train-00000-of-00001.parquet"))
        card = _CARD.format(name=name.partition("/")[2], count=report.kept, environment=make_line(environment, 80))
        (Path(draft) / "README.md").write_text(card, encoding="utf-8")
        try:
            api = hub.HfApi()
            url = api.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
            api.upload_folder(
                repo_id=name, repo_type="dataset", folder_path=draft, commit_message=f"{report.kept} episodes"
            )
        except (hub.errors.HfHubHTTPError, OSError, ValueError) as error:
            raise ConfigError(
                f"--push {name}: {make_line(error, 300)}; the export stays in {folder}", key="push"
            ) from error
    return str(url)


def _import_hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise ConfigError("--push needs huggingface_hub: pip install 'viewbox[hub]'") from error
    return huggingface_hub
