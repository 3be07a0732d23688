"""What `viewbox rollout` plays: the environment, its tasks and the generator, built from a config and overrides.

    job = build_job(env="digits", model="package:tiny_viewer", tasks=5)
    with open_session(job, create_rollout_folder(job)) as session:
        async for episode in session.play():
            print(episode.scores)
        session.write_summary()

Every episode is stored as it ends, and a later session plays what is missing: the process can be killed at any moment.
Nothing here imports torch unless the model is a local one.
"""

import json
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from ..configs import schema as configs
from ..configs.schema import Config
from ..configs.sections import EnvSection
from ..configs.validation import describe_errors
from ..configs.yaml_reader import Document
from ..core.base import BaseMultiTurnEnv
from ..core.tasks import to_sequence
from ..engines.generator import Generator
from ..engines.models import Player, check_for_endpoint, open_chat_model, open_token_model
from ..engines.openai.client import EndpointSettings, build_completions_url
from ..envs.data.sources import fingerprint_data
from ..envs.from_config import build_envs, merge_settings, prepare_env
from ..errors import ConfigError, describe_unknown
from ..records import Episode, Task
from ..utils.exit_status import log_failures
from ..utils.files import check_out, write_atomically
from ..utils.secrets import mask_values
from .play import play_many
from .scoring import RULE
from .scoring.metrics import compute_environment_metrics, drop_undefined
from .scoring.summary import summarize
from .store import run_folder
from .store.lines import MAX_COUNT
from .store.reader import load
from .store.writer import EpisodeWriter

MANY = 100  # tasks that are played without being asked for by number
SECTIONS = ("model", "env", "reward", "rollout", "endpoint")  # of a config
# score: every task has a right answer, and a fault of a tool leaves the figures; play: rows without one are tasks, too,
# and the model reads what failed; ask: so, and the tasks come later.
Purpose = Literal["score", "play", "ask"]


@dataclass(frozen=True)
class RolloutJob:
    """Everything that is needed to play.

    Args:
        config: the resolved config, with every setting of the environment.
        player: plays one session; a job made with `replace` has another generator.
        group: episodes per task.
        record: the settings of the command, saved in `rollout.json` (see `store/run_folder.py`).
        only: numbers of the tasks that are played, with the seeds that they have among all; None: all.
    """

    config: Config
    env: BaseMultiTurnEnv
    tasks: Sequence[Task]
    player: Player
    group: int = 1
    seed: int = 0
    record: Mapping[str, Any] = field(default_factory=dict)
    only: Collection[int] | None = None

    @cached_property
    def generator(self) -> Generator:
        return self.player.build_generator()


def build_job(
    *,
    env: str | None = None,
    model: str | None = None,
    endpoint: str | None = None,
    config: str | None = None,
    held_out: bool | None = False,
    overrides: Sequence[str] = (),
    tasks: int | None = None,
    group: int = 1,
    seed: int = 0,
    check_tokens: bool = False,
    purpose: Purpose = "score",
) -> RolloutJob:
    """Build a job; nothing is played yet. The arguments are the options of `viewbox rollout`.
    `held_out` None applies `env.eval` of the config if it has any; `overrides` are `section.key=value`, applied last;
    `tasks` None plays what there is, of more than 100 the first 100."""
    for name, number in (("tasks", tasks), ("group", group)):
        if number is not None and number < 1:
            raise ConfigError(f"--{name} = {number}; allowed: at least 1", key=name)
    read, requests = read_config(config, env=env, model=model, held_out=held_out, overrides=overrides)
    endpoint = requests.url if endpoint is None else endpoint
    if endpoint is None:
        if check_tokens:
            problem = "compares the prompts of a chat server; give its --endpoint"
            raise ConfigError(f"--check-tokens: {problem}", key="endpoint")
        opened = open_token_model(read.model, read.rollout)
    else:
        requests = requests.for_model(str(read.model.name))
        opened = open_chat_model(read.model, read.rollout, endpoint, requests, check_tokens=check_tokens)
        with configs.locate_errors(read):
            check_for_endpoint(read.rollout)
    full, built = _build_env(read, opened.env_settings, purpose)
    player = None if endpoint is None else opened.open_player(built)  # what may not be sent is refused first
    selected = () if purpose == "ask" else _select_tasks(built, tasks)
    if player is None:
        with configs.locate_errors(read):
            player = opened.open_player(built)
    data = {} if purpose == "ask" else fingerprint_data(built)
    record = {
        **({"data": data} if data else {}),
        "endpoint": None if endpoint is None else build_completions_url(endpoint),
        "tasks": len(selected),
        "group": group,
        "seed": seed,
        **requests.model_dump(include={"tool_images", "native_tools", "extra"}),
    }
    job = RolloutJob(full, built, selected, player, group, seed, record)
    with configs.locate_errors(read):
        job.generator  # noqa: B018  # its settings are checked now
    return job


def read_config(
    name: str | None = None,
    *,
    env: str | None = None,
    model: str | None = None,
    held_out: bool | None = False,
    overrides: Sequence[str] = (),
) -> tuple[Config, EndpointSettings]:
    """Return the sections of a config file that say what is played, with the arguments of `build_job` and then the
    overrides applied once."""
    document = Document("command line", {}) if name is None else configs.read(name)
    raw = document.values
    for unused in ("train", "lora", "log"):
        raw.pop(unused, None)
    _check_sections(document, SECTIONS)
    section = raw.setdefault("env", {})
    if isinstance(section, dict):  # another value is refused below
        if env is not None and section.setdefault("name", env) != env:
            raise ConfigError(f"--env {env}: the config's environment is {section['name']}; give one of the two")
        changes = section.pop("eval", {})
        if held_out and not changes:
            raise ConfigError("--held-out: plays the tasks of `env.eval`; give a --config that has it")
        if held_out is not False and isinstance(changes, Mapping):
            section |= merge_settings(section, changes)
    if model is not None:  # what the config says of loading holds for another model, too, but not where it was found
        named = raw.get("model")
        settings = dict(named) if isinstance(named, Mapping) else {}
        for key in ("tiny", *(["revision"] if settings.get("name") != model else [])):
            settings.pop(key, None)
        raw["model"] = {**settings, "name": model}
    configs.apply_overrides(document, overrides)
    _check_sections(document, SECTIONS)
    for section_name in ("env", "model"):
        values = raw.get(section_name) or {}
        if isinstance(values, Mapping) and not values.get("name"):
            raise ConfigError(f"--{section_name}: is missing; give it, or a --config that names one")
    requests = _parse_endpoint_settings(raw.pop("endpoint", {}), document)
    return configs.parse(raw, document), requests


def _check_sections(document: Document, allowed: Sequence[str]) -> None:
    for unknown in document.values.keys() - set(allowed):
        way = "a setting of the environment is written env.KEY=VALUE"
        place = document.find_place(str(unknown))
        raise ConfigError(f"{place}: {describe_unknown('section', str(unknown), allowed)}; {way}")


def _parse_endpoint_settings(values: Any, document: Document) -> EndpointSettings:
    try:
        return EndpointSettings.model_validate(values)
    except ValidationError as error:
        problem = describe_errors(error, EndpointSettings, values, "endpoint")[0]
        raise ConfigError(f"{document.find_place(problem.key)}: {problem}", key=problem.key) from error


def _build_env(config: Config, defaults: Mapping[str, Any], purpose: Purpose) -> tuple[Config, BaseMultiTurnEnv]:
    """Return the config with every setting of the environment, and the environment."""
    section = EnvSection.model_validate({"name": config.env.name, **defaults, **config.env.settings})
    config = config.model_copy(update={"env": section})
    with configs.locate_errors(config):
        env = build_envs(config, {} if purpose == "score" else {"on_tool_fault": "tell"})[0]
        if purpose != "ask":  # a session prepares it
            prepare_env(env)
        return config, env.play_unanswered() if purpose == "play" else env


def _select_tasks(env: BaseMultiTurnEnv, count: int | None) -> Sequence[Task]:
    if not hasattr(env.tasks, "__len__"):  # a stream of tasks
        return list(islice(env.tasks, count or MANY))
    tasks = to_sequence(env.tasks, env.name)
    count = min(len(tasks), MANY) if count is None else count
    if count > len(tasks):
        raise ConfigError(f"--tasks = {count}; {env.name} has {len(tasks)} tasks", key="tasks")
    return tasks[:count]


@dataclass
class RolloutSession:
    """One process that plays a job into a folder."""

    job: RolloutJob
    folder: Path
    writer: EpisodeWriter
    retried: int = 0  # failed episodes that are played again
    started: float = field(default_factory=time.monotonic)

    @property
    def total(self) -> int:
        """How many episodes the job has."""
        return len(self.job.tasks if self.job.only is None else self.job.only) * self.job.group

    def load_saved(self) -> Iterator[Episode]:
        yield from load(self.folder / run_folder.EPISODES)

    async def play(self) -> AsyncGenerator[Episode, None]:
        """Play what is missing; yield each episode after it is stored, and close the generator at the end."""
        job = self.job
        done = {(episode.info.get("index", -1), episode.info.get("sample", -1)) for episode in self.load_saved()}
        others = [n for n in range(len(job.tasks)) if job.only is not None and n not in job.only]
        episodes = play_many(
            job.env,
            job.tasks,
            job.generator,
            group=job.group,
            concurrency=job.player.concurrency,
            timeout=job.player.timeout,
            seed=job.seed,
            skip=done | {(number, sample) for number in others for sample in range(job.group)},
        )
        try:
            async for episode in episodes:
                yield self.writer.append_or_error(episode)
        finally:
            await episodes.aclose()
            await job.generator.close()

    def write_summary(self) -> dict[str, Any]:
        """Write summary.json, the figures of all stored episodes; return its content."""
        episodes = list(self.load_saved())
        unanswered = sum(
            not one.task.reference and (one.scores is None or one.scores.total is None) for one in episodes
        )
        usage = [use for episode in episodes if isinstance(use := episode.info.get("usage"), Mapping)]
        tokens = {name: sum(_get_count(use, name) for use in usage) for name in ("prompt_tokens", "completion_tokens")}
        summary = {
            "environment": self.job.env.name,
            "model": self.job.config.model.name,
            "episodes": len(episodes),
            **({"unanswered": unanswered} if unanswered else {}),
            "average": RULE,
            "faults": sum(episode.is_fault for episode in episodes),
            "metrics": drop_undefined(compute_environment_metrics(episodes, self.job.env)),
            "counts": summarize(episodes, {}, resamples=0).get_counts(),
            "errors": count_failures(episodes),
            "tokens": tokens,
            "seconds": time.monotonic() - self.started,
        }
        write_atomically(self.folder / "summary.json", json.dumps(mask_values(summary), indent=2) + "\n")
        return summary


@contextmanager
def open_session(job: RolloutJob, folder: Path, *, retry_failed: bool = False) -> Iterator[RolloutSession]:
    """Lock the folder, and start or resume the rollout in it. Raise `ConfigError` if another process writes it, or it
    was started with other settings."""
    started = time.monotonic()
    with run_folder.lock_folder(folder), log_failures(folder):
        run_folder.start_rollout(folder, job.config.model_dump(mode="json", exclude_unset=True), job.record)
        (folder / "summary.json").unlink(missing_ok=True)  # of what was stored before; the run has not ended
        retried = run_folder.move_failed_episodes(folder) if retry_failed else 0
        with EpisodeWriter(folder / run_folder.EPISODES) as writer:
            yield RolloutSession(job, folder, writer, retried, started)


def create_rollout_folder(job: RolloutJob, out: str | Path | None = None, *, kind: str = "rollout") -> Path:
    """Return the folder `out`, or a new one in `runs/` named after its kind, environment and model."""
    if out is not None:
        folder = check_out(out, "folder")
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    model = (job.config.model.name or "").rstrip("/").rpartition("/")[2]
    return run_folder.create_folder(Path("runs"), re.sub(r"[^\w.-]+", "-", f"{kind}-{job.config.env.name}-{model}"))


def _get_count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name, 0)
    return value if isinstance(value, int) and 0 <= value <= MAX_COUNT else 0


def count_failures(episodes: Sequence[Episode]) -> dict[str, int]:
    """Return how many episodes ended as `error` or `timeout`, by reason; the five most frequent reasons."""
    failed = (episode for episode in episodes if episode.end_reason in ("error", "timeout"))
    reasons = Counter(str(e.info.get("error") or e.info.get("last_failure") or "out of time") for e in failed)
    return dict(reasons.most_common(5))
