"""A model for one's own tasks: `load_model` on this machine, `connect` at an endpoint.

    model = viewbox.load_model("package:tiny_chest")
    print(viewbox.ask("chest_xray", "film.png", "Is there an effusion?", model))

Both give a generator, as `play_many` takes it. Its `env_settings` are the settings of an environment that follow from
the model: how it writes calls and coordinates, and the grid of its pictures.
"""

import os
from typing import Any

from ..configs.sections import ModelSection, RolloutSection
from ..errors import ConfigError
from ..network.hosts import read_api_key
from . import model_profiles
from .generator import Generator
from .openai.client import EndpointSettings, OpenAIGenerator, build_completions_url

MAX_PIXELS = 512 * 512  # of a view, as environments have it by default


def connect(endpoint: str, *, model: str, **settings: Any) -> OpenAIGenerator:
    """Return a model at an OpenAI-compatible server.

    Args:
        endpoint: its URL, such as http://127.0.0.1:8000/v1.
        model: its name there.
        settings: of the section `endpoint` of a config, such as api_key_env, and of `OpenAIGenerator`, such as
            max_tokens.

    >>> connect("http://127.0.0.1:8000", model="qwen3-vl-8b").env_settings["coordinates"]
    'per_mille'
    """
    own = {name: settings.pop(name) for name in EndpointSettings.model_fields if name in settings}
    requests, known = EndpointSettings.model_validate(own), model_profiles.find_model_defaults(model)
    url = build_completions_url(endpoint)
    key = read_api_key(url, requests.api_key_env, chosen=True, key="api_key_env")
    images = requests.tool_images or known.tool_images
    limits = {"response_format": requests.response_format, **requests.limits, **settings}
    generator = OpenAIGenerator(url, model, api_key=key, tool_images=images, extra=requests.extra, **limits)
    generator.env_settings = {"reply_format": "hermes", **known.to_settings()}
    if requests.native_tools:
        generator.env_settings["reply_format"] = "native"
    return generator


def load_model(name: str, *, max_pixels: int = MAX_PIXELS, **sampling: Any) -> Generator:
    """Return a model of this machine.

    Args:
        name: a folder, a hub name, or `package:tiny_chest` for one that is shipped.
        max_pixels: largest picture that it is shown.
        sampling: of the section `rollout` of a config, such as temperature and max_reply_tokens.

    Raises:
        ConfigError: it cannot be loaded, or what it needs is not installed.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from .hf import loading
        from .hf.chat_tokens import ChatTokens
        from .hf.parity import check_parity
        from .processes import choose_threads
        from .table import get_engine
    except ImportError as error:
        raise ConfigError(f"a local model needs more packages ({error}): pip install 'viewbox[train]'") from error
    section, rollout = ModelSection(name=name), RolloutSection.read({"slots": 1, **sampling})
    config, processor = loading.load_processor(section)
    loading.set_max_pixels(processor, max_pixels)
    loaded = loading.load_model(section)
    choose_threads(loaded, section.threads)
    chat = ChatTokens(processor, loaded.config, loaded.generation_config)
    check_parity(loaded, chat)
    generator: Generator = get_engine("hf").build(rollout, chat, loaded, model_name=name)
    generator.env_settings = loading.get_view_settings(config, processor)
    return generator
