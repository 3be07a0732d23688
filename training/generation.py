"""The model of a trainer as the engine plays with it: adapters merged, and in the precision of the loss."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate import Accelerator
from transformers import PreTrainedModel

from viewbox.rollouts.engine.adapters import has_two_byte_weights, use_merged_adapters
from viewbox.rollouts.engine.quantization import is_quantized


@contextmanager
def use_for_generation(accelerator: Accelerator, model: Any) -> Iterator[PreTrainedModel]:
    """Yields the model to generate with.

    Weights of two bytes with merged adapters need no autocast, which would cost an operation for every cast; the
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
