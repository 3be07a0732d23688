"""Servers that take token ids and pictures, and return ids with their log-probs: nothing is rendered or read twice.

`generator` has `TokenServerGenerator`, which knows no server; `vllm` and `integrations/verl` say how one is asked. Here
are the names that a module of the table `engines` has (`engines/table.py`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...configs.schema import Config
from ...configs.sections import ModelSection
from ...core.base import BaseMultiTurnEnv
from ...errors import ConfigError
from ...network.data_policy import check_may_leave
from ..settings import ServerSettings as Settings

if TYPE_CHECKING:
    from ..hf.chat_tokens import ChatTokens
    from .vllm import Served, VLLMGenerator
    from .weights import WeightSender


sends_weights = True


def describe(settings: Settings) -> str:
    where = f"the vLLM server at {settings.url}" if settings.url else "a vLLM server on this machine"
    return f"{where}, which is sent pictures and weights"


def check(config: Config, envs: Sequence[BaseMultiTurnEnv]) -> None:
    """Raise `ConfigError` if the settings of a run do not fit a vLLM server; nothing is sent."""
    from .process import find_vllm
    from .vllm import clean_url

    settings = config.rollout
    assert isinstance(settings, Settings)
    if settings.url is None:
        find_vllm()
    else:
        clean_url(settings.url)
    for env in envs:
        check_data(settings, env)
    if config.model.name is None:
        raise ConfigError(
            "model.tiny: is built in this process, and no server has it; allowed with rollout.engine = vllm: "
            "model.name, the model that the server was started with",
            key="model.tiny",
        )
    if config.lora is not None and config.lora.quantize is not None:
        raise ConfigError(
            f"lora.quantize = {config.lora.quantize}: adapters are merged for the server, and weights of 4 bits take "
            "none; allowed with rollout.engine = vllm: null",
            key="lora.quantize",
        )
    for name, value in settings.list_filters().items() if config.train.method == "grpo" else ():
        raise ConfigError(
            f"rollout.{name} = {value}: a vLLM server's log-probs are those of the filtered distribution, the loss's "
            f"are not; allowed with train.method = grpo: {Settings.model_fields[name].default}",
            key=f"rollout.{name}",
        )


def check_data(settings: Settings, env: BaseMultiTurnEnv) -> None:
    action, allowed = "rollout.url sends its images to", "a server on localhost"
    check_may_leave(env, settings.url, action=action, allowed=allowed, key="rollout.url")


def open_server(
    model: ModelSection, settings: Settings, env: BaseMultiTurnEnv, model_config: Any, processor: Any
) -> "Served":
    """Return the server at `url`, or one that is started for the first reply."""
    import torch

    from .process import build_server, choose_dtype
    from .vllm import Served

    check_data(settings, env)
    if settings.url is not None:
        return Served(settings.url)
    dtype, gpu = choose_dtype(model.dtype, model_config), torch.cuda.is_available()
    process = build_server(model, settings, processor.image_processor, dtype=dtype, gpu=gpu)
    return Served(process.url, process=process)


def build(
    settings: Settings, tokens: "ChatTokens", model: "Served", *, model_name: str = "", vision_cache: object = None
) -> "VLLMGenerator":
    from .vllm import VLLMGenerator

    return VLLMGenerator(model, tokens, settings, model_name=model_name)


def build_sender(
    model: ModelSection, settings: Settings, tokens: "ChatTokens", folder: Path, dtype: str
) -> "WeightSender":
    from .weights import build_sender

    return build_sender(model, settings, tokens, folder, dtype)
