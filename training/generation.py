"""The model of a trainer as it plays: adapters merged, in the precision of the loss, here or on a server."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from accelerate import Accelerator
from transformers import PreTrainedModel

from ..configs.sections import RolloutSection
from ..engines.generator import Generator
from ..engines.hf.adapters import has_two_byte_weights, use_merged_adapters
from ..engines.hf.chat_tokens import ChatTokens
from ..engines.hf.quantization import is_quantized
from ..engines.hf.vision_cache import VisionCache
from ..engines.table import get_engine

if TYPE_CHECKING:
    from ..engines.vllm.weights.sender import WeightSender

TINY = "tiny"  # recorded as the name of a model that is built, not loaded
SERVER_TIMEOUT = 600.0  # default seconds of an episode on a server, which may hang


@contextmanager
def use_for_generation(accelerator: Accelerator, model: Any) -> Iterator[PreTrainedModel]:
    """Yields the model to generate with.

    Weights of two bytes with adapters as columns need no autocast, which would cost an operation for every cast; the
    forward that accelerate wraps in autocast is left aside, too. float32 weights, and adapters beside weights of 4
    bits, are computed with under autocast, as in the loss.
    """
    unwrapped = accelerator.unwrap_model(model)
    with use_merged_adapters(unwrapped):
        if hasattr(unwrapped, "peft_config") and has_two_byte_weights(unwrapped) and not is_quantized(unwrapped):
            yield unwrapped.get_base_model()
        else:
            with accelerator.autocast():
                yield unwrapped


def prepare_generator(
    model: PreTrainedModel,
    tokens: ChatTokens,
    settings: RolloutSection,
    *,
    model_name: str = "",
    weights: "WeightSender | None" = None,
    vision_cache: VisionCache | None = None,
    key: Hashable = None,
    sends: bool = True,
) -> Callable[[], Generator]:
    """What makes the generator of a batch, inside `use_for_generation`; all processes call it together.

    Once all of its episodes are played, `weights.release` is called.

    Args:
        model: the policy.
        tokens: the way from messages to tokens.
        settings: the section `rollout`.
        model_name: recorded with each episode.
        weights: sends the model's weights to the server that generates; None: the model does, in this process.
        vision_cache: image features of the model.
        key: see `WeightSender.send`.
        sends: False: the server still has these weights, and this process may be the only one that calls.
    """
    source: Any = model
    if weights is not None:
        source = weights.send(model, key) if sends else weights.latest
    build = get_engine(settings.engine).build
    return partial(build, settings, tokens, source, model_name=model_name, vision_cache=vision_cache)
