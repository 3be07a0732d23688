"""The model of a trainer as it plays: adapters merged, in the precision of the loss, here or on a server."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    from ..engines.vllm.weights import WeightSender

TINY = "tiny"  # recorded as the name of a model that is built, not loaded
SERVER_TIMEOUT = 600.0  # default seconds of an episode on a server, which may hang


@contextmanager
def use_for_generation(accelerator: Accelerator, model: object) -> Iterator[PreTrainedModel]:
    """Yield the model to generate with. Weights of two bytes with adapters as columns need no autocast, which would
    cost an operation for every cast; the forward that accelerate wraps in autocast is left aside, too. float32 weights,
    and adapters beside weights of 4 bits, are computed with under autocast, as in the loss."""
    unwrapped = accelerator.unwrap_model(model)
    with use_merged_adapters(unwrapped):
        if hasattr(unwrapped, "peft_config") and has_two_byte_weights(unwrapped) and not is_quantized(unwrapped):
            yield unwrapped.get_base_model()
        else:
            with accelerator.autocast():
                yield unwrapped


@dataclass
class Sampler:
    """How the episodes of a policy are sampled."""

    tokens: ChatTokens
    rollout: RolloutSection
    model_name: str = ""
    weights: "WeightSender | None" = None
    vision_cache: VisionCache | None = None

    @property
    def timeout(self) -> float | None:
        """Seconds after which an episode is given up; None: never."""
        return self.rollout.timeout or (SERVER_TIMEOUT if self.weights else None)

    def prepare(
        self, model: PreTrainedModel, key: Hashable = None, *, slots: int | None = None
    ) -> Callable[[], Generator]:
        """Return what makes the generator of a batch, inside `use_for_generation`; all processes call it together. Once
        all of its episodes are played, `release` is called. `key`: see `WeightSender.send`. `slots`: episodes at once,
        at most; None: as many as `rollout` says."""
        source: Any = model if self.weights is None else self.weights.send(model, key)
        rollout = self.rollout
        if slots is not None:
            rollout = rollout.model_copy(update={"slots": min(rollout.slots, slots)})
        options: dict[str, Any] = {"model_name": self.model_name, "vision_cache": self.vision_cache}
        return partial(get_engine(rollout.engine).build, rollout, self.tokens, source, **options)

    def release(self) -> None:
        """Say that all episodes of a batch are played; all processes call it together."""
        if self.weights is not None:
            self.weights.release()
