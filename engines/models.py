"""Who answers: a model at a chat server, or one that an engine of the table plays from tokens to tokens.

    model = open_chat_model(section, rollout, endpoint, requests)  # or open_token_model(section, rollout)
    env = viewbox.make("digits", **model.env_settings)
    player = model.open_player(env)
    play_many(env, env.tasks, player.build_generator(), concurrency=player.concurrency, timeout=player.timeout)

A model comes before its environment, whose coordinates and views follow from it; what is sent, and where, is decided
for an environment. Nothing here imports torch unless the model is a local one.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from ..configs.sections import DEFAULT_ENGINE, ModelSection, RolloutSection
from ..configs.validation import describe_errors
from ..core.base import BaseMultiTurnEnv
from ..errors import ConfigError
from ..network.data_policy import check_may_leave
from ..network.hosts import read_api_key
from ..rewards import FormatReward
from .generator import Generator
from .model_profiles import find_model_defaults
from .openai.client import EndpointSettings, OpenAIGenerator, build_completions_url
from .table import get_engine, get_server_engine

if TYPE_CHECKING:
    from .vllm.process import ServerProcess

TIMEOUT = 600.0  # default seconds of an episode against a server
S = TypeVar("S", ModelSection, EndpointSettings)
CONCURRENCY = 16  # default episodes at once against an endpoint; a local model has `rollout.slots`


@dataclass(frozen=True)
class Player:
    """What plays an environment.

    Args:
        build_generator: builds what gives the replies, for one session: a client that was closed cannot be used again.
        concurrency: episodes in progress at once.
        timeout: seconds per episode; None for no limit.
        server: the server that belongs to this player, if there is one. It starts before the first reply at the latest,
            and ends with `close`, or with this process.
        threads: how many this process computes with, in words; None if that was not chosen.
    """

    build_generator: Callable[[], Generator]
    concurrency: int
    timeout: float | None
    server: "ServerProcess | None" = None
    threads: str | None = None

    def close(self) -> None:
        if self.server is not None:
            self.server.end()


class Model(NamedTuple):
    """A model: the settings of an environment that follow from it, and what makes a player of that environment."""

    env_settings: Mapping[str, Any]
    open_player: Callable[[BaseMultiTurnEnv], Player]


def open_chat_model(
    section: ModelSection,
    rollout: RolloutSection,
    endpoint: str,
    requests: EndpointSettings,
    *,
    check_tokens: bool = False,
) -> Model:
    """Return the model of a chat server; nothing is sent. Raise `ConfigError`."""
    if rollout.engine != DEFAULT_ENGINE:
        problem = f"rollout.engine is {rollout.engine}; give one of the two"
        raise ConfigError(f"--endpoint {endpoint}: {problem}", key="endpoint")
    name, url = str(section.name), build_completions_url(endpoint)
    known = find_model_defaults(name)
    tool_images = requests.tool_images or known.tool_images

    def open_player(env: BaseMultiTurnEnv) -> Player:
        check_may_leave(
            env, url, action="--endpoint sends its images to", allowed="an --endpoint on localhost", key="endpoint"
        )
        check = None
        if check_tokens:
            from .openai.token_check import build_token_check

            compared = section.model_copy(update={"name": requests.tokenizer or name})
            check = build_token_check(compared, section.max_pixels or env.max_pixels, tool_images)
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
            send_back=requests.send_back,
            **requests.limits,
        )
        concurrency = rollout.slots if "slots" in rollout.model_fields_set else CONCURRENCY
        return Player(build_generator, concurrency, rollout.timeout or TIMEOUT)

    taught = {"reply_format": "native"} if requests.native_tools else {}
    return Model({"reply_format": "hermes", **known.to_settings(), **taught}, open_player)


def check_for_endpoint(rollout: RolloutSection) -> None:
    """Raise `ConfigError` if a setting of the local engine is set, which no server accepts from a client."""
    for name in type(rollout).model_fields.keys() - RolloutSection.model_fields.keys():
        if name in rollout.model_fields_set and getattr(rollout, name) is not None:
            raise ConfigError(
                f"rollout.{name} = {getattr(rollout, name)}: applies to a local model only; a server decides this "
                "itself, so remove it",
                key=f"rollout.{name}",
            )


def open_token_model(section: ModelSection, rollout: RolloutSection) -> Model:
    """Return the model of a folder or the hub, which an engine of the table plays; its weights come with a player.
    Raise `ConfigError` or `ModelError` if it cannot be loaded, or what it needs is not installed."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from .hf import loading
        from .hf.chat_tokens import ChatTokens
        from .hf.parity import check_parity
        from .processes import choose_threads
    except ImportError as error:
        raise ConfigError(f"a local model needs more packages ({error}): pip install 'viewbox[train]'") from error
    config, processor = loading.load_processor(section)
    build, elsewhere = get_engine(rollout.engine).build, get_server_engine(rollout.engine)

    def open_player(env: BaseMultiTurnEnv) -> Player:
        loading.set_max_pixels(processor, section.max_pixels or env.max_pixels)
        name = str(section.name)
        if elsewhere is not None:
            loading.check_weights(section)  # the server loads what it finds
            served = elsewhere.open_server(section, rollout, env, config, processor)
            chat = ChatTokens(processor, config, loading.load_generation_config(section))
            build_generator = partial(build, rollout, chat, served, model_name=name)
            return Player(build_generator, rollout.slots, rollout.timeout or TIMEOUT, served.process)
        model = loading.load_model(section)
        threads = choose_threads(model, section.threads)
        chat = ChatTokens(processor, model.config, model.generation_config)
        check_parity(model, chat)
        build_generator = partial(build, rollout, chat, model, model_name=name)
        return Player(build_generator, rollout.slots, rollout.timeout, threads=threads)

    return Model(loading.get_view_settings(config, processor), open_player)


class _AnyTask(BaseMultiTurnEnv):
    """Stands for the environments that a model will play, of which nothing is known yet."""

    name, answer = "any", None


def connect(endpoint: str, *, model: str, **settings: Any) -> Generator:
    """Return a model at an OpenAI-compatible server. Its `env_settings` are those of an environment that follow from
    the model: how it writes calls and coordinates.

    Args:
        endpoint: its URL, such as http://127.0.0.1:8000/v1.
        model: its name there.
        settings: of the sections `endpoint` and `rollout` of a config, such as api_key_env and temperature.

    >>> connect("http://127.0.0.1:8000", model="qwen3-vl-8b").env_settings["coordinates"]
    'per_mille'
    """
    requests, rollout = _read_settings(EndpointSettings, settings)
    check_for_endpoint(rollout)
    return _start(open_chat_model(ModelSection(name=model), rollout, endpoint, requests))


def load_model(name: str, **settings: Any) -> Generator:
    """Return a model of this machine, with `env_settings` as `connect`: also the grid of its pictures. Raise
    `ConfigError` or `ModelError` if it cannot be loaded, or what it needs is not installed.

    Args:
        name: a folder, a hub name, or `package:tiny_chest` for one that is shipped.
        settings: of the sections `model` and `rollout` of a config, such as max_pixels and temperature.
    """
    section, rollout = _read_settings(ModelSection, {"slots": 1, **settings, "name": name})
    return _start(open_token_model(section, rollout))


def _read_settings(section: type[S], settings: Mapping[str, Any]) -> tuple[S, RolloutSection]:
    known = {name: value for name, value in settings.items() if name in section.model_fields}
    others = {name: value for name, value in settings.items() if name not in known}
    kind: type[BaseModel] = section
    values = known
    try:
        read = section.model_validate(known)
        kind, values = RolloutSection.find_class(others), others
        return read, RolloutSection.read(others)
    except ValidationError as error:
        raise ConfigError(str(describe_errors(error, kind, values)[0])) from None


def _start(model: Model) -> Generator:
    generator = model.open_player(_AnyTask(reward=FormatReward())).build_generator()
    generator.env_settings = model.env_settings
    return generator
