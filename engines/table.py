"""What an engine is: a module of the table `engines` (`registry.py`), which `rollout.engine` names.

An engine of another package is found by an entry point of the group `viewbox.engines`. Importing the module imports
neither torch nor a server: its functions do. An engine in this process has the first four names of `Engine`:

    class Settings(RolloutSection):
        beams: int = Field(default=1, description="replies that are tried")

    sends_weights = False

    def check(config, envs): ...

    def build(settings, tokens, model, *, model_name="", vision_cache=None):
        return BeamGenerator(model, tokens, settings)
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from ..configs.schema import Config
from ..configs.sections import ModelSection, RolloutSection
from ..core.base import BaseMultiTurnEnv
from ..errors import ConfigError, describe_unknown
from ..registry import import_plugin, list_plugins
from .generator import Generator

if TYPE_CHECKING:  # they import torch, or are of one engine only
    from .hf.chat_tokens import ChatTokens
    from .hf.vision_cache import VisionCache
    from .vllm.vllm import Served
    from .vllm.weights import WeightSender

NEEDED = ("Settings", "sends_weights", "check", "build")
NEEDED_OF_SERVERS = ("describe", "open_server", "build_sender")


class Engine(Protocol):
    """The module of an engine. Those with `sends_weights` sample in other processes, and also are a `ServerEngine`."""

    Settings: type[RolloutSection]  # the section `rollout` of this engine, with its own keys
    sends_weights: bool  # False: it is given the model; True: it has the model elsewhere, and is sent its weights

    def check(self, config: Config, envs: Sequence[BaseMultiTurnEnv]) -> None:
        """Raise `ConfigError` if a training run cannot use this engine; nothing is loaded or sent."""

    def build(
        self,
        settings: object,
        tokens: "ChatTokens",
        model: object,
        *,
        model_name: str = "",
        vision_cache: "VisionCache | None" = None,
    ) -> Generator:
        """Build a generator; of a `ServerEngine`, `model` is what `open_server` or its sender returned."""
        ...


class ServerEngine(Engine, Protocol):
    """The module of an engine that samples in other processes."""

    def describe(self, settings: object) -> str:
        """Return where episodes are sampled, in words, for the first lines of a run."""
        ...

    def open_server(
        self, model: ModelSection, settings: object, env: BaseMultiTurnEnv, model_config: object, processor: object
    ) -> "Served":
        """Return the server for a model that only plays. Raise `ConfigError` if the data may not be sent there."""
        ...

    def build_sender(
        self, model: ModelSection, settings: object, tokens: "ChatTokens", folder: Path, dtype: str
    ) -> "WeightSender":
        """Build what sends the weights of a run, before each generation; all processes call it together."""
        ...


def get_engine(name: str) -> Engine:
    """Return the module of an engine. Raise `ConfigError` if there is none, or if it lacks a name."""
    module = import_plugin("engines", name)
    if module is None:
        raise ConfigError(f"rollout.engine: {describe_unknown('engine', name, list_plugins('engines'))}")
    needed = [*NEEDED, *(NEEDED_OF_SERVERS if getattr(module, "sends_weights", False) else ())]
    missing = [attribute for attribute in needed if not hasattr(module, attribute)]
    if missing:
        raise ConfigError(
            f"rollout.engine = {name}: {module.__name__} has no {', '.join(missing)}; needed: {', '.join(needed)}",
            key="rollout.engine",
        )
    return cast(Engine, module)


def get_server_engine(name: str) -> ServerEngine | None:
    """Return the module of an engine that samples in other processes; None if it samples in this one."""
    engine = get_engine(name)
    return cast(ServerEngine, engine) if engine.sends_weights else None
