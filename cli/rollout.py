"""`viewbox rollout`: plays an environment's tasks against an endpoint or a local model, and keeps every episode.

The command can be killed at any moment: what has ended is on disk, and the same command with the same `--out` plays
what is missing. Nothing here imports torch unless the model is a local one.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from viewbox.cli.progress import Watch, errors_of, print_summary
from viewbox.configs import schema as configs
from viewbox.configs.schema import Config, EnvSection
from viewbox.configs.yaml_reader import Document
from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.envs.messages import ToolImages
from viewbox.errors import ConfigError
from viewbox.exit_status import logged_in
from viewbox.records import Task
from viewbox.rollouts.endpoint import http
from viewbox.rollouts.from_config import build_endpoint_settings, build_engine_settings, build_envs
from viewbox.rollouts.generator import Generator
from viewbox.rollouts.play import play_many
from viewbox.rollouts.scoring.metrics import compute_episode_metrics
from viewbox.rollouts.store import rollout_folder, run_folder
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter

TIMEOUT = 600.0  # default seconds of an episode against an endpoint
CONCURRENCY = 16  # episodes at once against an endpoint; a local model has `rollout.slots`
INTERRUPTED = 130


@dataclass(frozen=True)
class Options:
    """What the command line says; None: what the config says, else the default."""

    env: str | None = None
    model: str | None = None
    endpoint: str | None = None
    config: str | None = None
    held_out: bool = False
    settings: Sequence[str] = ()
    tasks: int = 100
    group: int = 1
    rollout: Mapping[str, Any] = field(default_factory=dict)  # keys of the section `rollout`
    seed: int = 0
    out: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    tool_images: ToolImages = "user"
    native_tools: bool = True
    extra: Sequence[str] = ()
    retry_failed: bool = False


@dataclass(frozen=True)
class Plan:
    """Everything that is needed to play."""

    config: Config
    env: BaseMultiTurnEnv
    tasks: Sequence[Task]
    generator: Generator
    concurrency: int
    timeout: float | None


def resolve(options: Options) -> Config:
    """The config of the command: a config file's sections, and over them what the command line says."""
    raw: dict[str, Any] = {}
    if options.config is not None:
        whole = configs.load(options.config).model_dump(mode="json", exclude_unset=True)
        raw = {name: whole[name] for name in ("model", "env", "reward", "rollout") if name in whole}
    env = raw.setdefault("env", {})
    if options.env is not None and env.setdefault("name", options.env) != options.env:
        raise ConfigError(f"--env {options.env}: the config's environment is {env['name']}; give one of the two")
    held_out = env.pop("eval", {})
    if options.held_out:
        if not held_out:
            raise ConfigError("--held-out: plays the tasks of `env.eval`; give a --config that has it")
        env |= held_out
    if options.model is not None:
        raw["model"] = {"name": options.model}
    raw.setdefault("rollout", {}).update(options.rollout)
    for missing in [f"--{name}" for name in ("env", "model") if not raw.get(name, {}).get("name")]:
        raise ConfigError(f"{missing}: is missing; give it, or a --config that names one")
    document = Document("command line", raw)
    for one in options.settings:
        document.override(f"env.{one}")
    return configs.parse(raw, document)


def prepare(options: Options) -> Plan:
    """The environment, its tasks and the generator; raises `ConfigError` for what cannot be played."""
    for name in ("tasks", "group"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name} = {getattr(options, name)}; allowed: at least 1")
    config = resolve(options)
    return _with_endpoint(options, config) if options.endpoint is not None else _with_model(options, config)


def _with_endpoint(options: Options, config: Config) -> Plan:
    from viewbox.rollouts.endpoint.client import OpenAIGenerator

    assert options.endpoint is not None
    name = config.model.name
    assert name is not None
    url = http.build_completions_url(options.endpoint)
    defaults = {"reply_format": "hermes"} | http.get_view_settings(name)
    if options.native_tools:
        defaults["reply_format"] = "native"
    config, env = _environment(config, defaults)
    if getattr(env, "restricted", False) and not http.is_loopback(url):
        raise ConfigError(
            f"{env.name}: its images are restricted and do not leave this machine; allowed: an --endpoint on localhost"
        )
    rollout = config.rollout
    with configs.located(config):
        settings = build_endpoint_settings(config)
    key = os.environ.get(options.api_key_env)
    generator = OpenAIGenerator(
        url, name, api_key=key, tool_images=options.tool_images, extra=_extra(options), **settings
    )
    concurrency = rollout.slots if "slots" in rollout.model_fields_set else CONCURRENCY
    return Plan(config, env, _tasks(env, options.tasks), generator, concurrency, rollout.timeout or TIMEOUT)


def _with_model(options: Options, config: Config) -> Plan:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from transformers.utils import logging as transformers_logging

        from viewbox.rollouts.engine import loading
        from viewbox.rollouts.engine.chat_tokens import ChatTokens
        from viewbox.rollouts.engine.engine import HFGenerator
    except ImportError as error:
        raise ConfigError(f"a local model needs more packages ({error}): pip install 'viewbox[train]'") from error
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    model_config, processor = loading.load_processor(config.model)
    config, env = _environment(config, loading.get_view_settings(model_config, processor))
    tasks, rollout = _tasks(env, options.tasks), config.rollout
    loading.set_max_pixels(processor, config.model.max_pixels or env.max_pixels)
    model = loading.load_model(config.model)
    chat = ChatTokens(processor, model.config, model.generation_config)
    generator = HFGenerator(model, chat, **build_engine_settings(config))
    return Plan(config, env, tasks, generator, rollout.slots, rollout.timeout)


def _environment(config: Config, defaults: dict[str, Any]) -> tuple[Config, BaseMultiTurnEnv]:
    """The environment, and the config that names every setting it was made with."""
    section = EnvSection.model_validate({"name": config.env.name, **defaults, **config.env.settings})
    config = config.model_copy(update={"env": section})
    with configs.located(config):
        return config, build_envs(config, {})[0]


def _tasks(env: BaseMultiTurnEnv, count: int) -> Sequence[Task]:
    if isinstance(env.tasks, Sequence):
        if count > len(env.tasks):
            raise ConfigError(f"--tasks = {count}: {env.name} has {len(env.tasks)}")
        return env.tasks[:count]
    return list(islice(env.tasks, count))


def _extra(options: Options) -> dict[str, Any]:
    document = Document("--extra", {})
    for one in options.extra:
        document.override(one)
    return document.values


def run(options: Options, tell: Callable[[str], None] = print) -> int:
    """Plays what is missing and prints the figures; returns the exit status (130: interrupted)."""
    started = time.monotonic()
    plan = prepare(options)
    command = {
        "endpoint": options.endpoint and http.build_completions_url(options.endpoint),
        **{name: getattr(options, name) for name in ("tasks", "group", "seed", "tool_images", "native_tools")},
        "extra": _extra(options),
    }
    folder = _folder(options, plan)
    with run_folder.lock_folder(folder), logged_in(folder):
        rollout_folder.start_rollout(folder, plan.config.model_dump(mode="json", exclude_unset=True), command)
        again = rollout_folder.move_failed_episodes(folder) if options.retry_failed else 0
        with EpisodeWriter(folder / rollout_folder.EPISODES) as writer:
            tell(f"folder: {folder}" + (f" ({writer.count} episodes are there)" if writer.count else ""))
            if again:
                tell(f"{again} failed episodes are played again")
            heading = f"{plan.env.name}, {plan.config.model.name}"
            now = getattr(plan.generator, "now", None)
            watch = Watch(total=options.tasks * options.group, heading=heading, now=now)
            try:
                asyncio.run(_play(options, plan, folder, writer, watch))
            except KeyboardInterrupt:
                tell(f"interrupted: {writer.count} of {watch.total} episodes are stored; go on with --out {folder}")
                return INTERRUPTED
        summary = summarize(folder, plan, time.monotonic() - started)
    print_summary(summary)
    if summary["errors"]:
        tell(f"to play failed episodes again: --out {folder} --retry-failed")
    tell(f"figures: {folder / 'summary.json'}")
    return 0


def _folder(options: Options, plan: Plan) -> Path:
    if options.out is not None:
        folder = Path(options.out)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    model = (plan.config.model.name or "").rstrip("/").rpartition("/")[2]
    return run_folder.create_folder(Path("runs"), re.sub(r"[^\w.-]+", "-", f"rollout-{plan.config.env.name}-{model}"))


async def _play(options: Options, plan: Plan, folder: Path, writer: EpisodeWriter, watch: Watch) -> None:
    there: set[tuple[int, int]] = set()
    for episode in load(folder / rollout_folder.EPISODES):
        there.add((episode.info["index"], episode.info["sample"]))
        watch.saw(episode, earlier=True)
    episodes = play_many(
        plan.env,
        plan.tasks,
        plan.generator,
        group=options.group,
        concurrency=plan.concurrency,
        timeout=plan.timeout,
        seed=options.seed,
        skip=there,
    )
    try:
        with watch.shown():
            async for episode in episodes:
                writer.append(episode)
                watch.saw(episode)
    finally:
        await episodes.aclose()  # type: ignore[attr-defined]
        await plan.generator.close()


def summarize(folder: Path, plan: Plan, seconds: float) -> dict[str, Any]:
    """The figures of all episodes in the folder, which are also its summary.json."""
    episodes = list(load(folder / rollout_folder.EPISODES))
    usage = [episode.info.get("usage", {}) for episode in episodes]
    summary = {
        "environment": plan.env.name,
        "model": plan.config.model.name,
        "episodes": len(episodes),
        "metrics": compute_episode_metrics(episodes, plan.env.reward),
        "errors": errors_of(episodes),
        "tokens": {name: sum(one.get(name, 0) for one in usage) for name in ("prompt_tokens", "completion_tokens")},
        "seconds": seconds,
    }
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary
