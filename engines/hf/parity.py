"""Does our engine compute what the model does? One short conversation with two pictures, once after loading."""

from typing import Any

import torch
from PIL import Image
from transformers import PreTrainedModel

from ...errors import ModelError
from ..generator import Conversation, TokenRecord
from .cache_layers import find_layers
from .chat_tokens import ChatTokens
from .kv_cache import KVCache
from .model_runner import ModelRunner, use_eval_mode
from .scheduler import Sequence, Stats
from .vision_cache import VisionCache

TOLERANCE = {4: 1e-3, 2: 0.1}  # of a distribution's total variation, by bytes of a weight


def check_parity(model: PreTrainedModel, tokens: ChatTokens) -> None:
    """Compare a prefill and a decode step of the engine with a plain forward of the same ids and pixels.

    Raises:
        ModelError: they differ by more than rounding does.
    """
    difference = measure_difference(model, tokens)
    allowed = TOLERANCE[min(4, max(2, model.dtype.itemsize))]
    if not difference <= allowed:  # also NaN
        raise ModelError(
            f"model_type {tokens.architecture.model_type!r}: the engine's next token differs from that of the model's "
            f"own forward, by {difference:.2g} of the probability; allowed: {allowed:g}. This model is not supported",
            key="model.name",
        )


@torch.no_grad()
def measure_difference(model: PreTrainedModel, tokens: ChatTokens) -> float:
    """Return the total variation between the engine's distribution of a token and the model's own, the larger of
    two."""
    architecture, images = tokens.architecture, tokens.processor.image_processor
    side = images.patch_size * images.merge_size
    pictures = [
        architecture.preprocess(images, Image.linear_gradient("L").resize((side * columns, side * rows)))
        for columns, rows in ((2, 1), (2, 3))
    ]
    (word, *_), end = tokens.tokenizer("a", add_special_tokens=False)["input_ids"], tokens.end_id
    ids = [word]
    for picture in pictures:
        ids += [*[tokens.image_id] * picture.tokens, end, word]
    with use_eval_mode(model):
        ours = _run_engine(model, tokens, ids, pictures, word)
        theirs = _run_model(model, tokens, [*ids, word], pictures)
    return 0.5 * (ours.softmax(-1) - theirs.softmax(-1)).abs().sum(-1).max().item()


def _run_engine(
    model: PreTrainedModel, tokens: ChatTokens, ids: list[int], pictures: list[Any], following: int
) -> torch.Tensor:
    """Return the logits after a prompt, and after one token more, (2, vocabulary)."""
    sequence = Sequence(Conversation([], (), 0, 0, record=TokenRecord(prompt_ids=ids)), due=0)
    sequence.images = [(f"picture {number}", picture) for number, picture in enumerate(pictures)]
    cache, features = (
        KVCache(find_layers(model.config.get_text_config()), 1),
        VisionCache(model, tokens.architecture),
    )
    cache.take_slot(sequence)
    runner = ModelRunner(model, tokens, features, cache, Stats())
    after_prompt = runner.prefill([sequence])
    sequence.output_ids = [following]
    return torch.cat([after_prompt, runner.decode([sequence])])


def _run_model(model: PreTrainedModel, tokens: ChatTokens, ids: list[int], pictures: list[Any]) -> torch.Tensor:
    """Return the logits of the last two tokens in one forward without a cache, (2, vocabulary)."""
    base: Any = model.model
    before = getattr(base, "rope_deltas", None)  # such a forward leaves it on the model
    given = torch.tensor([ids], device=model.device)
    vision = tokens.architecture.build_vision_inputs(pictures, model.device, model.dtype)
    types = (given == tokens.image_id).int()
    logits: torch.Tensor = model(
        input_ids=given, mm_token_type_ids=types, use_cache=False, logits_to_keep=2, **vision
    ).logits
    if hasattr(base, "rope_deltas"):
        base.rope_deltas = before
    return logits[0].float()
