"""What `viewbox rollout` plays: the environment, its tasks and the generator, built from a config and overrides.

    job = build_job(RolloutOptions(env="digits", model="package:tiny_viewer", tasks=5))

`viewbox.rollouts.session` plays a job into a folder. Nothing here imports torch unless the model is a local one.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ..configs import schema as configs
from ..configs.schema import Config
from ..configs.sections import EnvSection
from ..configs.validation import describe_errors
from ..configs.yaml_reader import Document
from ..core.base import BaseMultiTurnEnv
from ..core.tasks import to_sequence
from ..core.variants import remove_tools
from ..engines import model_profiles
from ..engines.generator import Generator
from ..engines.openai.client import EndpointSettings, OpenAIGenerator, build_completions_url
from ..envs.data.fingerprint import fingerprint_data
from ..envs.from_config import (
    build_endpoint_settings,
    build_engine_settings,
    build_envs,
    build_vllm_settings,
    check_url_for_data,
    merge_settings,
    prepare_env,
)
from ..errors import ConfigError, describe_unknown
from ..network.data_policy import check_may_leave
from ..network.hosts import read_api_key
from ..records import Task

if TYPE_CHECKING:
    from ..engines.vllm.process import ServerProcess

TIMEOUT = 600.0  # default seconds of an episode against an endpoint
CONCURRENCY = 16  # default episodes at once against an endpoint; a local model has `rollout.slots`
SECTIONS = ("model", "env", "reward", "rollout", "endpoint")  # of an override


@dataclass(frozen=True)
class RolloutOptions:
    """What to play.

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
    """

    env: str | None = None
    model: str | None = None
    endpoint: str | None = None
    config: str | None = None
    held_out: bool | None = False
    overrides: Sequence[str] = ()
    tasks: int = 100
    group: int = 1
    seed: int = 0
    check_tokens: bool = False


@dataclass(frozen=True)
class RolloutJob:
    """Everything that is needed to play.

    Args:
        config: the resolved config, with every setting of the environment.
        env: the environment.
        tasks: the tasks to play.
        generator: gives the replies.
        concurrency: episodes in progress at once.
        timeout: seconds per episode; None for no limit.
        group: episodes per task.
        seed: sampling seed.
        record: the settings of the command, saved in `rollout.json` (see `store/rollout_folder.py`).
        server: the vLLM server that belongs to this job, if there is one. It starts before the first reply at the
            latest, and ends with `close`, or with this process.
        threads: how many this process computes with, in words; None if that was not chosen.
    """

    config: Config
    env: BaseMultiTurnEnv
    tasks: Sequence[Task]
    generator: Generator
    concurrency: int
    timeout: float | None
    group: int = 1
    seed: int = 0
    record: Mapping[str, Any] = field(default_factory=dict)
    server: "ServerProcess | None" = None
    threads: str | None = None

    def close(self) -> None:
        """Ends the server, if one belongs to this job."""
        if self.server is not None:
            self.server.end()


def build_job(options: RolloutOptions, server: "ServerProcess | None" = None) -> RolloutJob:
    """Build the job for these options; raises `ConfigError` if an option or a setting is invalid.

    `server` is that of another job with the same model, which then serves both.
    """
    for name in ("tasks", "group"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name} = {getattr(options, name)}; allowed: at least 1", key=name)
    config, endpoint = load_config(options)
    if options.check_tokens and options.endpoint is None:
        raise ConfigError("--check-tokens: compares the prompts of a chat server; give its --endpoint", key="endpoint")
    if options.endpoint is None:
        return _build_token_job(options, config, endpoint, server)
    if config.rollout.engine != "hf":
        raise ConfigError(
            f"--endpoint {options.endpoint}: rollout.engine is {config.rollout.engine}; give one of the two",
            key="endpoint",
        )
    return _build_endpoint_job(options, config, endpoint, options.endpoint)


def remove_tools_of_job(job: RolloutJob, *, refuse: bool = False) -> RolloutJob:
    """The same job without tools: its environment offers none, or refuses every call.

    Raises:
        ConfigError: the environment has no tools to leave out.
    """
    if not job.env.tools:
        raise ConfigError(f"{job.env.name}: has no tools, so nothing can be compared; play it with `viewbox rollout`")
    record = {**job.record, "tools": "refused" if refuse else "hidden"}
    return replace(job, env=remove_tools(job.env, refuse=refuse), record=record)


def load_config(options: RolloutOptions) -> tuple[Config, EndpointSettings]:
    """The sections of the config file, with the options and then the overrides applied."""
    raw: dict[str, Any] = {}
    if options.config is not None:
        whole = configs.load(options.config).model_dump(mode="json", exclude_unset=True)
        raw = {name: whole[name] for name in ("model", "env", "reward", "rollout") if name in whole}
    env = raw.setdefault("env", {})
    if options.env is not None and env.setdefault("name", options.env) != options.env:
        raise ConfigError(f"--env {options.env}: the config's environment is {env['name']}; give one of the two")
    held_out = env.pop("eval", {})
    if options.held_out and not held_out:
        raise ConfigError("--held-out: plays the tasks of `env.eval`; give a --config that has it")
    if options.held_out is not False:
        env |= merge_settings(env, held_out)
    if options.model is not None:
        raw["model"] = {"name": options.model}
    document, limits = Document("command line", raw), configs.read_limits(raw)
    for override in options.overrides:
        document.override(override)
    configs.check_limits(limits, document)
    for section in raw.keys() - set(SECTIONS):
        raise ConfigError(
            f"{document.find_place(section)}: {describe_unknown('section', section, SECTIONS)}; "
            "a setting of the environment is written env.KEY=VALUE"
        )
    for name in ("env", "model"):
        values = raw.get(name) or {}
        if isinstance(values, Mapping) and not values.get("name"):
            raise ConfigError(f"--{name}: is missing; give it, or a --config that names one")
    endpoint = _parse_endpoint_settings(raw.pop("endpoint", {}), document)
    return configs.parse(raw, document), endpoint


def _parse_endpoint_settings(values: Any, document: Document) -> EndpointSettings:
    try:
        return EndpointSettings.model_validate(values)
    except ValidationError as error:
        problem = describe_errors(error, EndpointSettings, values)[0]
        problem = problem._replace(key=f"endpoint.{problem.key}".rstrip("."))
        raise ConfigError(
            f"{document.find_place(problem.key)}: {problem}", key=problem.key, given=problem.given
        ) from error


def _build_endpoint_job(options: RolloutOptions, config: Config, endpoint: EndpointSettings, server: str) -> RolloutJob:
    name = config.model.name
    assert name is not None
    url = build_completions_url(server)
    defaults = {"reply_format": "hermes"} | model_profiles.find_model_settings(name)
    if endpoint.native_tools:
        defaults["reply_format"] = "native"
    config, env = _build_env(config, defaults)
    check_may_leave(
        env, url, action="--endpoint sends its images to", allowed="an --endpoint on localhost", key="endpoint"
    )
    rollout = config.rollout
    with configs.locate_errors(config):
        settings = build_endpoint_settings(config)
    kind = model_profiles.find_model_type(name)
    if endpoint.tool_images is None:
        default = model_profiles.get_model_defaults(kind).tool_images if kind else "user"
        endpoint = endpoint.model_copy(update={"tool_images": default})
    assert endpoint.tool_images is not None
    check = None
    if options.check_tokens:
        from ..engines.openai.token_check import build_token_check

        check = build_token_check(config, env, endpoint.tokenizer or name, endpoint.tool_images)
    generator = OpenAIGenerator(
        url,
        name,
        api_key=read_api_key(url, endpoint.api_key_env, chosen=True, key="endpoint.api_key_env"),
        tool_images=endpoint.tool_images,
        token_check=check,
        extra=endpoint.extra,
        **settings,
    )
    return RolloutJob(
        config,
        env,
        _select_tasks(env, options.tasks),
        generator,
        rollout.slots if "slots" in rollout.model_fields_set else CONCURRENCY,
        rollout.timeout or TIMEOUT,
        options.group,
        options.seed,
        _describe_command(options, endpoint, url, env),
    )


def _build_token_job(
    options: RolloutOptions, config: Config, endpoint: EndpointSettings, server: "ServerProcess | None"
) -> RolloutJob:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from transformers.utils import logging as transformers_logging

        from ..engines.hf import loading
        from ..engines.hf.chat_tokens import ChatTokens
        from ..engines.hf.engine import HFGenerator
        from ..engines.hf.threads import choose_threads
        from ..engines.vllm.vllm import build_vllm_generator
    except ImportError as error:
        raise ConfigError(f"a local model needs more packages ({error}): pip install 'viewbox[train]'") from error
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    model_config, processor = loading.load_processor(config.model)
    config, env = _build_env(config, loading.get_view_settings(model_config, processor))
    tasks, rollout = _select_tasks(env, options.tasks), config.rollout
    loading.set_max_pixels(processor, config.model.max_pixels or env.max_pixels)
    generator: Generator
    threads = None
    if rollout.engine == "vllm":
        check_url_for_data(env, config)
        chat = ChatTokens(processor, model_config, loading.load_generation_config(config.model))
        with configs.locate_errors(config):
            settings = build_vllm_settings(config)
            if rollout.url is None:
                server = server or _build_server(config, model_config, processor)
                settings |= {"url": server.url, "process": server}
            generator = build_vllm_generator(tokens=chat, **settings)
    else:
        model = loading.load_model(config.model)
        threads = choose_threads(model, config.model.threads)
        chat = ChatTokens(processor, model.config, model.generation_config)
        generator = HFGenerator(model, chat, **build_engine_settings(config))
    timeout = rollout.timeout or (TIMEOUT if rollout.engine == "vllm" else None)
    record = _describe_command(options, endpoint, None, env)
    return RolloutJob(
        config, env, tasks, generator, rollout.slots, timeout, options.group, options.seed, record, server, threads
    )


def _build_server(config: Config, model_config: Any, processor: Any) -> "ServerProcess":
    import torch

    from ..engines.vllm.launch import build_server, choose_dtype

    dtype = choose_dtype(config.model.dtype, model_config)
    return build_server(config, processor.image_processor, dtype=dtype, gpu=torch.cuda.is_available())


def _build_env(config: Config, defaults: Mapping[str, Any]) -> tuple[Config, BaseMultiTurnEnv]:
    """The config with every setting of the environment, and the environment."""
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
        raise ConfigError(f"--tasks = {count}; {env.name} has {len(tasks)} tasks", key="tasks", given=count)
    return tasks[:count]


def _describe_command(
    options: RolloutOptions, endpoint: EndpointSettings, url: str | None, env: BaseMultiTurnEnv
) -> dict[str, Any]:
    """The settings of the command, and its data; to resume it, they must be the same: see `store/rollout_folder.py`."""
    data = fingerprint_data(env)
    return {
        **({"data": data} if data else {}),
        "endpoint": url,
        "tasks": options.tasks,
        "group": options.group,
        "seed": options.seed,
        "tool_images": endpoint.tool_images,
        "native_tools": endpoint.native_tools,
        "extra": endpoint.extra,
    }
