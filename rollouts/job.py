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
import os
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ..configs import schema as configs
from ..configs.schema import Config
from ..configs.sections import DEFAULT_ENGINE, EnvSection, RolloutSection
from ..configs.validation import describe_errors
from ..configs.yaml_reader import Document
from ..core.base import BaseMultiTurnEnv, remove_tools
from ..core.tasks import to_sequence
from ..engines import model_profiles
from ..engines.generator import Generator
from ..engines.openai.client import EndpointSettings, OpenAIGenerator, build_completions_url
from ..engines.table import get_engine, get_server_engine
from ..envs.data import DataEnv
from ..envs.data.sources import fingerprint_data
from ..envs.from_config import build_envs, merge_settings, prepare_env
from ..errors import ConfigError, describe_unknown
from ..network.data_policy import check_may_leave
from ..network.hosts import read_api_key
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

if TYPE_CHECKING:
    from ..engines.vllm.process import ServerProcess

TIMEOUT = 600.0  # default seconds of an episode against an endpoint
CONCURRENCY = 16  # default episodes at once against an endpoint; a local model has `rollout.slots`
MANY = 100  # tasks that are played without being asked for by number
SECTIONS = ("model", "env", "reward", "rollout", "endpoint")  # of a config


@dataclass(frozen=True)
class RolloutJob:
    """Everything that is needed to play.

    Args:
        config: the resolved config, with every setting of the environment.
        build_generator: builds what gives the replies. It is used for one session, since a client that was closed
            cannot be used again; a job made with `replace` has another.
        concurrency: episodes in progress at once.
        timeout: seconds per episode; None for no limit.
        group: episodes per task.
        record: the settings of the command, saved in `rollout.json` (see `store/run_folder.py`).
        server: the server that belongs to this job, if there is one. It starts before the first reply at the latest,
            and ends with `close`, or with this process.
        threads: how many this process computes with, in words; None if that was not chosen.
    """

    config: Config
    env: BaseMultiTurnEnv
    tasks: Sequence[Task]
    build_generator: Callable[[], Generator]
    concurrency: int
    timeout: float | None
    group: int = 1
    seed: int = 0
    record: Mapping[str, Any] = field(default_factory=dict)
    server: "ServerProcess | None" = None
    threads: str | None = None

    @cached_property
    def generator(self) -> Generator:
        return self.build_generator()

    def close(self) -> None:
        if self.server is not None:
            self.server.end()


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
    own: bool = False,
    unanswered: bool = False,
) -> RolloutJob:
    """Build a job; nothing is played yet. The arguments are the options of `viewbox rollout`.

    `held_out` None applies `env.eval` of the config if it has any; `overrides` are `section.key=value`, applied last;
    `tasks` None plays what there is, of more than 100 the first 100. With `own` the tasks are a person's own, and come
    later. With `unanswered` rows without a right answer are played, too.
    """
    for name, number in (("tasks", tasks), ("group", group)):
        if number is not None and number < 1:
            raise ConfigError(f"--{name} = {number}; allowed: at least 1", key=name)
    read, requests = read_config(config, env=env, model=model, held_out=held_out, overrides=overrides)
    tasks = 0 if own else tasks
    endpoint = requests.url if endpoint is None else endpoint
    if endpoint is None:
        if check_tokens:
            raise ConfigError(
                "--check-tokens: compares the prompts of a chat server; give its --endpoint", key="endpoint"
            )
        job = _build_token_job(read, tasks, unanswered)
    else:
        job, requests = _build_endpoint_job(read, requests, endpoint, tasks, check_tokens, unanswered)
    url = None if endpoint is None else build_completions_url(endpoint)
    record = {
        "endpoint": url,
        "tasks": len(job.tasks),
        "group": group,
        "seed": seed,
        **requests.model_dump(include={"tool_images", "native_tools", "extra"}),
    }
    data = {} if own else fingerprint_data(job.env)
    job = replace(job, group=group, seed=seed, record={**({"data": data} if data else {}), **record})
    with configs.locate_errors(read):
        job.generator  # noqa: B018  # its settings are checked now
    return job


def remove_tools_of_job(job: RolloutJob, *, refuse: bool = False) -> RolloutJob:
    """Return the same job without tools: its environment offers none, or refuses every call.

    Raises:
        ConfigError: the environment has no tools to leave out.
    """
    if not job.env.tools:
        raise ConfigError(f"{job.env.name}: has no tools, so nothing can be compared; play it with `viewbox rollout`")
    record = {**job.record, "tools": "refused" if refuse else "hidden"}
    return replace(job, env=remove_tools(job.env, refuse=refuse), record=record)


def read_config(
    name: str | None = None,
    *,
    env: str | None = None,
    model: str | None = None,
    held_out: bool | None = False,
    overrides: Sequence[str] = (),
) -> tuple[Config, EndpointSettings]:
    """Return the sections of a config file that say what is played, with the arguments of `build_job` and then the
    overrides applied once.
    """
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
        given = raw.get("model")
        kept = dict(given) if isinstance(given, Mapping) else {}
        for found in ("tiny", *(["revision"] if kept.get("name") != model else [])):
            kept.pop(found, None)
        raw["model"] = {**kept, "name": model}
    configs.apply_overrides(document, overrides)
    _check_sections(document, SECTIONS)
    for part in ("env", "model"):
        values = raw.get(part) or {}
        if isinstance(values, Mapping) and not values.get("name"):
            raise ConfigError(f"--{part}: is missing; give it, or a --config that names one")
    requests = _parse_endpoint_settings(raw.pop("endpoint", {}), document)
    return configs.parse(raw, document), requests


def _check_sections(document: Document, allowed: Sequence[str]) -> None:
    for unknown in document.values.keys() - set(allowed):
        way = "a setting of the environment is written env.KEY=VALUE"
        if unknown == "endpoint":
            way = "give --endpoint URL, and its other settings on the command line: endpoint.KEY=VALUE"
        place = document.find_place(str(unknown))
        raise ConfigError(f"{place}: {describe_unknown('section', str(unknown), allowed)}; {way}")


def _parse_endpoint_settings(values: Any, document: Document) -> EndpointSettings:
    try:
        return EndpointSettings.model_validate(values)
    except ValidationError as error:
        problem = describe_errors(error, EndpointSettings, values)[0]
        problem = problem._replace(key=f"endpoint.{problem.key}".rstrip("."))
        raise ConfigError(f"{document.find_place(problem.key)}: {problem}", key=problem.key) from error


def _build_endpoint_job(
    config: Config, requests: EndpointSettings, endpoint: str, count: int | None, check_tokens: bool, unanswered: bool
) -> tuple[RolloutJob, EndpointSettings]:
    """Return the job for a chat server, and the settings of its requests with what follows from the model."""
    name, rollout = str(config.model.name), config.rollout
    if rollout.engine != DEFAULT_ENGINE:
        raise ConfigError(
            f"--endpoint {endpoint}: rollout.engine is {rollout.engine}; give one of the two", key="endpoint"
        )
    url = build_completions_url(endpoint)
    known = model_profiles.find_model_defaults(name)
    defaults = {"reply_format": "hermes"} | known.to_settings()
    if requests.native_tools:
        defaults["reply_format"] = "native"
    config, env = _build_env(config, defaults, unanswered)
    check_may_leave(
        env, url, action="--endpoint sends its images to", allowed="an --endpoint on localhost", key="endpoint"
    )
    with configs.locate_errors(config):
        check_for_endpoint(rollout)
    tool_images = requests.tool_images or known.tool_images
    check = None
    if check_tokens:
        from ..engines.openai.token_check import build_token_check

        section = config.model.model_copy(update={"name": requests.tokenizer or name})
        check = build_token_check(section, config.model.max_pixels or env.max_pixels, tool_images)
    build_generator = partial(
        OpenAIGenerator,
        url,
        name,
        api_key=read_api_key(url, requests.api_key_env, chosen=True, key="endpoint.api_key_env"),
        sampling=rollout.sampling,
        max_tokens=rollout.max_reply_tokens if "max_reply_tokens" in rollout.model_fields_set else None,
        tool_images=tool_images,
        token_check=check,
        extra=requests.extra,
        response_format=requests.response_format,
        **requests.limits,
    )
    concurrency = rollout.slots if "slots" in rollout.model_fields_set else CONCURRENCY
    tasks = _select_tasks(env, count)
    job = RolloutJob(config, env, tasks, build_generator, concurrency, rollout.timeout or TIMEOUT)
    return job, requests.model_copy(update={"tool_images": tool_images})


def check_for_endpoint(rollout: RolloutSection) -> None:
    """Raise `ConfigError` if a setting of the local engine is set, which no server accepts from a client."""
    for name in type(rollout).model_fields.keys() - RolloutSection.model_fields.keys():
        if name in rollout.model_fields_set and getattr(rollout, name) is not None:
            raise ConfigError(
                f"rollout.{name} = {getattr(rollout, name)}: applies to a local model only; a server decides this "
                "itself, so remove it",
                key=f"rollout.{name}",
            )


def _build_token_job(config: Config, count: int | None, unanswered: bool) -> RolloutJob:
    """Return the job for a model that an engine of the table plays, from tokens to tokens."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from ..engines.hf import loading
        from ..engines.hf.chat_tokens import ChatTokens
        from ..engines.hf.parity import check_parity
        from ..engines.processes import choose_threads
    except ImportError as error:
        raise ConfigError(f"a local model needs more packages ({error}): pip install 'viewbox[train]'") from error
    model_config, processor = loading.load_processor(config.model)
    config, env = _build_env(config, loading.get_view_settings(model_config, processor), unanswered)
    tasks, rollout = _select_tasks(env, count), config.rollout
    loading.set_max_pixels(processor, config.model.max_pixels or env.max_pixels)
    build, elsewhere = get_engine(rollout.engine).build, get_server_engine(rollout.engine)
    if elsewhere is not None:
        with configs.locate_errors(config):
            loading.check_weights(config.model)  # the server loads what it finds
            served = elsewhere.open_server(config.model, rollout, env, model_config, processor)
        chat = ChatTokens(processor, model_config, loading.load_generation_config(config.model))
        build_generator = partial(build, rollout, chat, served, model_name=str(config.model.name))
        timeout = rollout.timeout or TIMEOUT
        return RolloutJob(config, env, tasks, build_generator, rollout.slots, timeout, server=served.process)
    model = loading.load_model(config.model)
    threads = choose_threads(model, config.model.threads)
    chat = ChatTokens(processor, model.config, model.generation_config)
    check_parity(model, chat)
    build_generator = partial(build, rollout, chat, model, model_name=str(config.model.name))
    return RolloutJob(config, env, tasks, build_generator, rollout.slots, rollout.timeout, threads=threads)


def _build_env(config: Config, defaults: Mapping[str, Any], unanswered: bool) -> tuple[Config, BaseMultiTurnEnv]:
    """Return the config with every setting of the environment, and the environment."""
    told = {"on_tool_fault": "tell"}  # nothing learns from these episodes
    section = EnvSection.model_validate({"name": config.env.name, **told, **defaults, **config.env.settings})
    config = config.model_copy(update={"env": section})
    with configs.locate_errors(config):
        env = build_envs(config, {})[0]
        prepare_env(env)
        return config, env.play_unanswered() if unanswered and isinstance(env, DataEnv) else env


def _select_tasks(env: BaseMultiTurnEnv, count: int | None) -> Sequence[Task]:
    if count == 0:
        return ()
    if not hasattr(env.tasks, "__len__"):  # a stream of tasks
        return list(islice(env.tasks, count or MANY))
    tasks = to_sequence(env.tasks, env.name)
    count = min(len(tasks), MANY) if count is None else count
    if count > len(tasks):
        raise ConfigError(f"--tasks = {count}; {env.name} has {len(tasks)} tasks", key="tasks")
    return tasks[:count]


# ---------------------------------------------------------------- played into a folder
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
        return len(self.job.tasks) * self.job.group

    def load_saved(self) -> Iterator[Episode]:
        yield from load(self.folder / run_folder.EPISODES)

    async def play(self) -> AsyncGenerator[Episode, None]:
        """Play what is missing; yields each episode after it is stored, and closes the generator at the end."""
        job = self.job
        episodes = play_many(
            job.env,
            job.tasks,
            job.generator,
            group=job.group,
            concurrency=job.concurrency,
            timeout=job.timeout,
            seed=job.seed,
            skip={(episode.info.get("index", -1), episode.info.get("sample", -1)) for episode in self.load_saved()},
        )
        try:
            async for episode in episodes:
                yield self.writer.append_or_error(episode)
        finally:
            await episodes.aclose()
            await job.generator.close()

    def write_summary(self) -> dict[str, Any]:
        """Write summary.json, the figures of all stored episodes; returns its content."""
        episodes = list(self.load_saved())
        usage = [use for episode in episodes if isinstance(use := episode.info.get("usage"), Mapping)]
        summary = {
            "environment": self.job.env.name,
            "model": self.job.config.model.name,
            "episodes": len(episodes),
            "average": RULE,
            "faults": sum(episode.is_fault for episode in episodes),
            "metrics": drop_undefined(compute_environment_metrics(episodes, self.job.env)),
            "counts": summarize(episodes, {}, resamples=0).get_counts(),
            "errors": count_failures(episodes),
            "tokens": {
                name: sum(_get_count(use, name) for use in usage) for name in ("prompt_tokens", "completion_tokens")
            },
            "seconds": time.monotonic() - self.started,
        }
        write_atomically(self.folder / "summary.json", json.dumps(mask_values(summary), indent=2) + "\n")
        return summary


@contextmanager
def open_session(job: RolloutJob, folder: Path, *, retry_failed: bool = False) -> Iterator[RolloutSession]:
    """Locks the folder and prepares it: a new one is started, an unfinished one is resumed.

    Raises:
        ConfigError: another process writes this folder, or it was started with other settings.
    """
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
