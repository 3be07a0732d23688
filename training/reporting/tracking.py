"""Sets up Weights & Biases: without an API key a run is stored offline; a resumed run continues its W&B run.

Images are sent only with `log.send_images`, and never from a restricted environment.
"""

import netrc
import os
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from transformers import TrainerCallback, TrainerState, TrainingArguments

from ...configs.schema import Config
from ...configs.sections import LogSection
from ...errors import ConfigError, describe_unknown
from ...network.data_policy import HasData, check_may_leave
from ...records import Episode
from ...rollouts.scoring.restriction import find_in_saved
from ...rollouts.scoring.summary import ABOUT
from ...utils.files import read_regular, write_atomically
from ...viewer.episode_page import describe_pictures
from ...viewer.pictures import Pictures

# By tracker: the variable that makes it upload checkpoints and other files, and the value it stands for if it is unset.
UPLOAD_VARIABLES = {
    "wandb": ("WANDB_LOG_MODEL", "false"),
    "mlflow": ("HF_MLFLOW_LOG_ARTIFACTS", "false"),
    "dagshub": ("HF_DAGSHUB_LOG_ARTIFACTS", "false"),
    "comet_ml": ("COMET_LOG_ASSETS", "false"),
    "clearml": ("CLEARML_LOG_MODEL", "true"),
    "dvclive": ("HF_DVCLIVE_LOG_MODEL", "false"),
    "swanlab": ("SWANLAB_LOG_MODEL", "false"),
}
TABLE_EVERY = 10  # steps


def check_trackers(names: Sequence[str]) -> None:
    """Raise `ConfigError` if a tracker of `log.report_to` is unknown or not installed."""
    from transformers.integrations.integration_utils import (
        INTEGRATION_TO_CALLBACK,
        get_available_reporting_integrations,
    )

    for name in names:
        if name not in INTEGRATION_TO_CALLBACK:
            problem = describe_unknown("tracker", name, INTEGRATION_TO_CALLBACK)
            raise ConfigError(f"log.report_to: {problem}", key="log.report_to")
        installed = get_available_reporting_integrations()
        if name not in installed:
            raise ConfigError(
                f"log.report_to = {name!r}: the package is not installed; "
                f"allowed now: {', '.join(installed) or 'none'}",
                key="log.report_to",
            )


def prepare_wandb(log: LogSection, folder: Path, print_line: Callable[[str], None]) -> None:
    """Set the environment variables that W&B reads, unless the user has set them.

    Args:
        log: the config's section; nothing is done unless it reports to wandb.
        folder: the run's folder, whose name becomes the name of the W&B run.
        print_line: is told how to upload a run that is stored offline.
    """
    if "wandb" not in log.report_to:
        return
    id_file = folder / "wandb-id"
    if not id_file.exists():
        write_atomically(id_file, uuid.uuid4().hex[:12])
    settings = {
        "WANDB_PROJECT": "viewbox",
        "WANDB_NAME": folder.name,
        "WANDB_DIR": str(folder),
        "WANDB_RUN_ID": read_regular(id_file, limit=1024, inside=folder).decode().strip(),
        "WANDB_RESUME": "allow",
        "WANDB_SILENT": "true",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    if "WANDB_MODE" not in os.environ and not has_api_key():
        os.environ["WANDB_MODE"] = "offline"
        print_line(
            "W&B: no API key, so the run is stored offline; "
            f"upload it later with: wandb sync {folder}/wandb/offline-run-*"
        )


def has_api_key() -> bool:
    """Return whether W&B can log in: by WANDB_API_KEY, or by the netrc file that `wandb login` writes."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def check_images(log: LogSection, env: HasData) -> None:
    """Raise `ConfigError` if `log.send_images` is set, but images must stay here or no tracker takes them."""
    if not log.send_images:
        return
    key = "log.send_images"
    check_may_leave(env, "W&B", action="log.send_images sends its images to", allowed="false", key=key)
    if "wandb" not in log.report_to:
        raise ConfigError("log.send_images: only W&B takes images; allowed only with log.report_to: [wandb]", key=key)


def list_sources(config: Config, *envs: HasData) -> list[HasData]:
    """Return all that a run has data of: its environments, and what it learns from if that is restricted."""
    saved = config.train.episodes
    return [*envs, *([SimpleNamespace(name=saved, restricted=True)] if find_in_saved(saved) else [])]


def check_uploads(log: LogSection, env: HasData, arguments: TrainingArguments) -> None:
    """Raise `ConfigError` if more than figures would be uploaded from a run on a restricted environment."""
    check_images(log, env)
    if arguments.push_to_hub:
        key = "train.push_to_hub"
        check_may_leave(env, "the Hugging Face hub", action=f"{key} uploads to", allowed="leave it out", key=key)
    for tracker in log.report_to:
        name, default = UPLOAD_VARIABLES.get(tracker, ("", "false"))
        if os.environ.get(name, default).lower() not in ("", "0", "false", "off", "no"):
            check_may_leave(env, tracker, action="checkpoints are uploaded to", allowed=f"the variable {name}=false")
    if env.restricted and "wandb" in log.report_to:
        os.environ["WANDB_CONSOLE"] = "off"  # otherwise it uploads what the run prints


def send_held_out(held_out: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the held-out figures into the summary of the W&B run, if there is one."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        wandb.run.summary.update(flatten_held_out(held_out))


def flatten_held_out(held_out: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the held-out figures as `eval/<when>/<figure>`, and the ends of their intervals under /low and /high.

    >>> flatten_held_out({"after": {"reward": 0.5, "intervals": {"reward": [0.4, 0.6]}}})
    {'eval/after/reward': 0.5, 'eval/after/reward/low': 0.4, 'eval/after/reward/high': 0.6}
    """
    flat: dict[str, float] = {}
    for when, figures in held_out.items():
        flat |= {f"eval/{when}/{name}": value for name, value in figures.items() if name not in ABOUT}
        for name, (low, high) in figures.get("intervals", {}).items():
            flat |= {f"eval/{when}/{name}/low": low, f"eval/{when}/{name}/high": high}
    return flat


class EpisodeTable(TrainerCallback):
    """Logs a W&B table of a few episodes every `TABLE_EVERY` steps: a row for each turn, or each picture of one."""

    def __init__(self, latest: Callable[[], Sequence[Episode]]) -> None:
        self.latest = latest

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **kwargs: Any) -> None:
        import wandb

        if wandb.run is None or "reward" not in (logs or {}) or state.global_step % TABLE_EVERY:
            return
        table = wandb.Table(columns=["step", "task", "reward", "end", "answer", "turn", "role", "text", "picture"])
        for episode in self.latest():
            total = None if episode.scores is None else episode.scores.total
            answer = None if episode.answer is None else str(dict(episode.answer))
            row = (state.global_step, episode.task.id, total, episode.end_reason, answer)
            pictures = Pictures.of(episode)
            shown = describe_pictures(pictures)
            for number, (turn, ids) in enumerate(zip(episode.turns, pictures.of_turns, strict=True)):
                for place, name in enumerate(list(filter(None, ids)) or [None]):
                    image = name and wandb.Image(
                        pictures.by_id[name].ref.open(), boxes=build_overlays(shown[name]["boxes"])
                    )
                    table.add_data(*row, number, turn.role, "" if place else turn.content, image)
        wandb.log({"episodes": table}, commit=False)


def build_overlays(boxes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the boxes on a picture as the overlays of `wandb.Image`: a group for gold, answer and tool."""
    overlays: dict[str, Any] = {}
    for box in boxes:
        if box["shape"] == "box":
            (left, top), (right, bottom) = box["corners"][0], box["corners"][2]
            position = {"minX": left, "maxX": right, "minY": top, "maxY": bottom}
            group = overlays.setdefault(box["kind"], {"box_data": [], "class_labels": {0: box["kind"]}})
            group["box_data"].append({"position": position, "class_id": 0, "box_caption": box["label"]})
    return overlays
