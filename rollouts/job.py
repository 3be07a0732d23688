"""What `viewbox rollout` plays: the environment, its tasks and the generator, built from a config and overrides.

    job = build_job(env="digits", model="package:tiny_viewer", tasks=5)

`viewbox.rollouts.session` plays a job into a folder. Nothing here imports torch unless the model is a local one.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ..configs import schema as configs
from ..configs.schema import Config
from ..configs.sections import DEFAULT_ENGINE, EnvSection, RolloutSection
from ..configs.validation import describe_errors
from ..configs.yaml_reader import Document
from ..core.base import BaseMultiTurnEnv
from ..core.tasks import to_sequence
from ..core.variants import Pictures, remove_tools, swap_pictures
from ..engines import model_profiles
from ..engines.generator import Generator
from ..engines.openai.client import EndpointSettings, OpenAIGenerator, build_completions_url
from ..engines.table import get_engine, get_server_engine
from ..envs.data.fingerprint import fingerprint_data
from ..envs.from_config import build_envs, merge_settings, prepare_env
from ..errors import ConfigError, describe_unknown
from ..network.data_policy import check_may_leave
from ..network.hosts import read_api_key
from ..records import Task

if TYPE_CHECKING:
    from ..engines.vllm.process import ServerProcess

TIMEOUT = 600.0  # default seconds of an episode against an endpoint
CONCURRENCY = 16  # default episodes at once against an endpoint; a local model has `rollout.slots`
SECTIONS = ("model", "env", "reward", "rollout")  # of a config; an override may also be of `endpoint`


@dataclass(frozen=True)
class RolloutJob:
    """Everything that is needed to play.

    Args:
        config: the resolved config, with every setting of the environment.
        env: the environment.
        tasks: the tasks to play.
        build_generator: builds what gives the replies. It is used for one session, since a client that was closed
            cannot be used again; a job made with `replace` has another.
        concurrency: episodes in progress at once.
        timeout: seconds per episode; None for no limit.
        group: episodes per task.
        seed: sampling seed.
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
    tasks: int = 100,
    group: int = 1,
    seed: int = 0,
    check_tokens: bool = False,
) -> RolloutJob:
    """Build a job; nothing is played yet.

    Args:
        env: a registered environment, or `package.module:Class`; default: the config's.
        model: the model's name at the endpoint; without one, a folder, hub name or `package:tiny_viewer`. Default: the
            config's.
        endpoint: URL of an OpenAI-compatible server; None plays a local model.
        config: a run's YAML, of which `model`, `env`, `reward` and `rollout` are used.
        held_out: apply the settings in `env.eval` of the config; None: if it has any.
        overrides: `section.key=value`, applied last; see `SECTIONS`.
        tasks: number of tasks, from the first.
        group: episodes per task.
        seed: sampling seed; each episode derives its own from it.
        check_tokens: with an endpoint: compare the tokens of its prompts with those of our engine.

    Raises:
        ConfigError: an argument or a setting is invalid.
    """
    for name, number in (("tasks", tasks), ("group", group)):
        if number < 1:
            raise ConfigError(f"--{name} = {number}; allowed: at least 1", key=name)
    read, requests = read_config(config, env=env, model=model, held_out=held_out, overrides=overrides)
    if endpoint is None:
        if check_tokens:
            raise ConfigError(
                "--check-tokens: compares the prompts of a chat server; give its --endpoint", key="endpoint"
            )
        job = _build_token_job(read, tasks)
    else:
        job, requests = _build_endpoint_job(read, requests, endpoint, tasks, check_tokens)
    url = None if endpoint is None else build_completions_url(endpoint)
    record = {
        "endpoint": url,
        "tasks": tasks,
        "group": group,
        "seed": seed,
        **requests.model_dump(include={"tool_images", "native_tools", "extra"}),
    }
    data = fingerprint_data(job.env)
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


def swap_pictures_of_job(job: RolloutJob, pictures: Pictures, tool: str | None = None) -> RolloutJob:
    """Return the same job with blank pictures, or those of another task; `tool`: only in calls of this tool."""
    if pictures == "real":
        return job
    record = {**job.record, "pictures": pictures, **({} if tool is None else {"of": tool})}
    return replace(job, env=swap_pictures(job.env, pictures, job.tasks, tool), record=record)


def read_config(
    name: str | None = None,
    *,
    env: str | None = None,
    model: str | None = None,
    held_out: bool | None = False,
    overrides: Sequence[str] = (),
) -> tuple[Config, EndpointSettings]:
    """Return the sections of a config file that say what is played, with the arguments and then the overrides applied
    once.

    The arguments are those of `build_job`.
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
    if model is not None:
        raw["model"] = {"name": model}
    configs.apply_overrides(document, overrides)
    _check_sections(document, (*SECTIONS, "endpoint"))
    for part in ("env", "model"):
        values = raw.get(part) or {}
        if isinstance(values, Mapping) and not values.get("name"):
            raise ConfigError(f"--{part}: is missing; give it, or a --config that names one")
    requests = _parse_endpoint_settings(raw.pop("endpoint", {}), document)
    return configs.parse(raw, document), requests


def _check_sections(document: Document, allowed: Sequence[str]) -> None:
    for unknown in document.values.keys() - set(allowed):
        raise ConfigError(
            f"{document.find_place(str(unknown))}: {describe_unknown('section', str(unknown), allowed)}; "
            "a setting of the environment is written env.KEY=VALUE"
        )


def _parse_endpoint_settings(values: Any, document: Document) -> EndpointSettings:
    try:
        return EndpointSettings.model_validate(values)
    except ValidationError as error:
        problem = describe_errors(error, EndpointSettings, values)[0]
        problem = problem._replace(key=f"endpoint.{problem.key}".rstrip("."))
        raise ConfigError(f"{document.find_place(problem.key)}: {problem}", key=problem.key) from error


def _build_endpoint_job(
    config: Config, requests: EndpointSettings, endpoint: str, count: int, check_tokens: bool
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
    config, env = _build_env(config, defaults)
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


def _build_token_job(config: Config, count: int) -> RolloutJob:
    """Return the job for a model that an engine of the table plays, from tokens to tokens."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from ..engines.hf import loading
        from ..engines.hf.chat_tokens import ChatTokens
        from ..engines.hf.parity import check_parity
        from ..engines.hf.threads import choose_threads
    except ImportError as error:
        raise ConfigError(f"a local model needs more packages ({error}): pip install 'viewbox[train]'") from error
    model_config, processor = loading.load_processor(config.model)
    config, env = _build_env(config, loading.get_view_settings(model_config, processor))
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


def _build_env(config: Config, defaults: Mapping[str, Any]) -> tuple[Config, BaseMultiTurnEnv]:
    """Return the config with every setting of the environment, and the environment."""
    section = EnvSection.model_validate({"name": config.env.name, **defaults, **config.env.settings})
    config = config.model_copy(update={"env": section})
    with configs.locate_errors(config):
        env = build_envs(config, {})[0]
        prepare_env(env)
        return config, env


def _select_tasks(env: BaseMultiTurnEnv, count: int) -> Sequence[Task]:
    if not hasattr(env.tasks, "__len__"):  # a stream of tasks
        return list(islice(env.tasks, count))
    tasks = to_sequence(env.tasks, env.name)
    if count > len(tasks):
        raise ConfigError(f"--tasks = {count}; {env.name} has {len(tasks)} tasks", key="tasks")
    return tasks[:count]
