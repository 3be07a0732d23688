"""Does our engine compute what the model does? One conversation of two turns with a picture in each, once after
loading."""

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
SIZES = (224, 168), (140, 336)  # of the pictures


def check_parity(model: PreTrainedModel, tokens: ChatTokens) -> None:
    """Compare what the engine plays with a plain forward of the same ids and pixels.

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
    """Return the largest total variation between the engine's distribution of a token and the model's own: after a
    prompt with a picture, a token of a reply, and a second turn with another picture and a token more."""
    architecture, template = tokens.architecture, tokens.template
    pictures = [architecture.preprocess(Image.linear_gradient("L").resize(size)) for size in SIZES]
    word, end = tokens.tokenizer("a", add_special_tokens=False)["input_ids"][0], tokens.end_id
    picture = [{"type": "image"}, {"type": "text", "text": "a"}]
    texts = [
        template.render([{"role": "user", "content": picture}], prompt=True),
        template.render_after_reply([template.build_tool_result(picture)]),
    ]
    prompt, observation = (
        tokens.tokenizer(text.replace(architecture.placeholder, one.text), add_special_tokens=False)["input_ids"]
        for text, one in zip(texts, pictures, strict=True)
    )
    steps = [(prompt, pictures[:1]), ([word], []), ([end, *observation], pictures[1:]), ([word], [])]
    with use_eval_mode(model):
        ours = _run_engine(model, tokens, steps)
        theirs = _run_model(model, tokens, steps)
    return 0.5 * (ours.softmax(-1) - theirs.softmax(-1)).abs().sum(-1).max().item()


def _run_engine(model: PreTrainedModel, tokens: ChatTokens, steps: list[Any]) -> torch.Tensor:
    """Return the logits after each step, (4, vocabulary)."""
    sequence = Sequence(Conversation([], (), 0, 0, record=TokenRecord(prompt_ids=[])), due=0)
    features = VisionCache(model, tokens.architecture)
    cache = KVCache(find_layers(model.config.get_text_config()), 1)
    cache.take_slot(sequence)
    runner = ModelRunner(model, tokens, features, cache, Stats())
    logits = []
    for ids, pictures in steps:
        if len(ids) == 1:
            sequence.output_ids = ids
            logits.append(runner.decode([sequence]))
            sequence.conversation.record.prompt_ids += ids
        else:
            sequence.conversation.record.prompt_ids += ids
            sequence.images = [(f"{len(logits)}", picture) for picture in pictures]
            logits.append(runner.prefill([sequence]))
    return torch.cat(logits)


def _run_model(model: PreTrainedModel, tokens: ChatTokens, steps: list[Any]) -> torch.Tensor:
    """Return the logits after each step in one forward without a cache, (4, vocabulary)."""
    base: Any = model.model
    before = getattr(base, "rope_deltas", None)  # such a forward leaves it on the model
    given = torch.tensor([[i for ids, _ in steps for i in ids]], device=model.device)
    pictures = [picture for _, some in steps for picture in some]
    vision = tokens.architecture.build_vision_inputs(pictures, model.device, model.dtype)
    types = tokens.architecture.build_token_types(given)
    logits: torch.Tensor = model(input_ids=given, use_cache=False, **types, **vision).logits
    if hasattr(base, "rope_deltas"):
        base.rope_deltas = before
    ends = torch.tensor([len(ids) for ids, _ in steps]).cumsum(0) - 1
    return logits[0, ends].float()
