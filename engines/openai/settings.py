"""The settings of requests to an endpoint, and what compares its prompts with those of our engine."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from ...configs.schema import Config
from ...configs.sections import Section
from ...core.base import BaseMultiTurnEnv
from ...core.messages import ToolImages
from ...errors import ConfigError, ModelError

if TYPE_CHECKING:  # it imports torch
    from .token_check import TokenCheck


class EndpointSettings(Section):
    """Settings of the requests to an endpoint; given as overrides, such as `endpoint.tool_images=tool`."""

    api_key_env: str | None = Field(
        default=None,
        description="environment variable with the API key; default: OPENAI_API_KEY, if the endpoint is OpenAI's",
    )
    tool_images: ToolImages | None = Field(
        default=None,
        description="role of the message that holds a tool's image, tool or user; default: what the model was trained "
        "on, if its name is known, else user, which every server takes",
    )
    tokenizer: str | None = Field(
        default=None, description="with --check-tokens: the model's folder or hub name; default: --model"
    )
    native_tools: bool = Field(default=True, strict=True, description="send tools as `tools`; false: in the prompt")
    extra: dict[str, Any] = Field(
        default_factory=dict, description="fields merged into every request; null removes a field"
    )


def build_token_check(config: Config, env: BaseMultiTurnEnv, name: str, tool_images: ToolImages) -> "TokenCheck":
    """Compares the prompts of a server with those of our engine, for the model in this folder or of this hub name."""
    from ..hf import loading
    from ..hf.chat_tokens import ChatTokens
    from .token_check import TokenCheck

    section = config.model.model_copy(update={"name": name})
    try:
        model_config, processor = loading.load_processor(section)
    except ModelError as error:
        raise ConfigError(
            f"--check-tokens needs the model's tokenizer and image processor: {error}; give them as "
            "endpoint.tokenizer=FOLDER",
            key="endpoint.tokenizer",
        ) from error
    loading.set_max_pixels(processor, config.model.max_pixels or env.max_pixels)
    return TokenCheck(ChatTokens(processor, model_config, loading.load_generation_config(section)), tool_images)
