"""Does a model work here, and does our engine compute what it does? A conversation of two turns with pictures in each
tells, once after loading. `viewbox rollout --model FOLDER --check-model` also prints what its config, its processor and
its chat template were asked.

The model's own forward is the measure: of the whole conversation at once, with pixels, without a cache. How much it
differs from itself, when it reads only the tokens up to a place, is rounding, and `compare` allows a multiple of it.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from transformers import PreTrainedModel

from ...assets import find_model_folder
from ...configs.sections import ModelSection
from ...errors import ModelError, ViewboxError
from ...utils.terminal import describe_error
from ..generator import Conversation, TokenRecord
from . import loading
from .architectures import Architecture, Pixels
from .chat_tokens import ChatTokens, PixelCache
from .model_runner import use_eval_mode
from .own_forward import build_runner, compute_logits
from .scheduler import Sequence, Stats
from .vision_cache import VisionCache

FLOOR = {4: 1e-4, 2: 0.02}  # of a distribution's total variation that is always allowed, by bytes of a weight
SHARE = 4  # of the model's own rounding that is allowed on top
SIZES = (224, 168), (140, 336), (140, 336)  # of the pictures; two of the same are told apart by what they show
SHOWN = (224, 224), (640, 480), (1024, 1024)  # of the pictures whose tokens are told

log = logging.getLogger("viewbox.engine")
Step = tuple[list[int], list[Pixels]]  # tokens that a turn adds, and the pictures among them


class ForwardComparison(NamedTuple):
    """Total variations between distributions of a next token, the largest of four places."""

    difference: float  # between the engine and the model
    noise: float  # between the model and itself
    allowed: float

    def check(self, tokens: ChatTokens) -> None:
        """Raise `ModelError` if they differ by more than rounding does."""
        if not self.difference <= self.allowed:  # also NaN
            raise ModelError(
                f"model_type {tokens.architecture.model_type!r}: the engine's next token differs from that of the "
                f"model's own forward, by {self.difference:.2g} of the probability; allowed: {self.allowed:.2g} (that "
                f"forward differs from itself by {self.noise:.2g}). This model is not supported",
                key="model.name",
            )


def check_parity(model: PreTrainedModel, tokens: ChatTokens) -> None:
    """Raise `ModelError` if the engine and a plain forward of the same ids and pixels differ by more than rounding
    does."""
    compare(model, tokens).check(tokens)


def compare(model: PreTrainedModel, tokens: ChatTokens) -> ForwardComparison:
    """Play a prompt with a picture, a token of a reply, a second turn with two more pictures, and a token more. Raise
    `ModelError` if that cannot be played. If only the engine fails, `tokens` have it played by the model's own forward
    and cache from now on."""
    try:
        return _compare(model, tokens)
    except (ViewboxError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # models fail in many ways
        words = f"fails in a conversation of two turns: {describe_error(error, 300)}"
        engines = tokens.architecture
        if engines.find_lack() is None:
            try:
                _use(tokens, Architecture(engines.config, engines.processor, f"the engine {words}"))
                result = _compare(model, tokens)
                result.check(tokens)
                log.warning("model_type %r plays %s", engines.model_type, describe_way(tokens.architecture))
                return result
            except Exception:
                _use(tokens, engines)
        raise engines.refuse(words) from error


def _use(tokens: ChatTokens, architecture: Architecture) -> None:
    tokens.architecture, tokens.pixel_cache = architecture, PixelCache(architecture)


@torch.no_grad()
def _compare(model: PreTrainedModel, tokens: ChatTokens) -> ForwardComparison:
    steps = build_steps(tokens)
    with use_eval_mode(model):
        ours = _run_engine(model, tokens, steps)
        parts = [_run_model(model, tokens, steps[: count + 1]) for count in range(len(steps))]
    noise = _measure_variation(torch.stack([row[-1] for row in parts]), parts[-1])
    allowed = FLOOR[min(4, max(2, model.dtype.itemsize))] + SHARE * noise
    return ForwardComparison(_measure_variation(ours, parts[-1]), noise, allowed)


def build_steps(tokens: ChatTokens) -> list[Step]:
    """Return the turns of a conversation that a model may be asked to play."""
    architecture, template = tokens.architecture, tokens.template
    shown = [Image.linear_gradient("L"), Image.radial_gradient("L"), Image.linear_gradient("L").rotate(90)]
    pictures = [architecture.preprocess(image.resize(size)) for image, size in zip(shown, SIZES, strict=True)]
    word = tokens.encode_plain("a")[0]
    parts = [{"type": "image"}, {"type": "text", "text": "a"}]
    prompt = template.render([{"role": "user", "content": parts}], prompt=True)
    results = template.render_after_reply([template.build_tool_result(parts), template.build_tool_result(parts)])
    texts = [picture.text for picture in pictures]
    first, second = tokens.encode_text(prompt, texts[:1]), tokens.encode_text(results, texts[1:])
    return [(first, pictures[:1]), ([word], []), ([tokens.end_id, *second], pictures[1:]), ([word], [])]


def _measure_variation(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return 0.5 * (ours.softmax(-1) - theirs.softmax(-1)).abs().sum(-1).max().item()


def _run_engine(model: PreTrainedModel, tokens: ChatTokens, steps: list[Step]) -> torch.Tensor:
    sequence = Sequence(Conversation([], (), 0, 0, record=TokenRecord(prompt_ids=[])), due=0)
    runner = build_runner(model, tokens, VisionCache(model, tokens.architecture), 1, Stats())
    runner.cache.take_slot(sequence)
    logits = []
    for ids, pictures in steps:
        if not pictures:
            sequence.output_ids = ids
            logits.append(runner.decode([sequence]))
            sequence.conversation.record.prompt_ids += ids
        else:
            sequence.conversation.record.prompt_ids += ids
            new = [(f"{len(logits)}{number}", picture) for number, picture in enumerate(pictures)]
            sequence.images = [*sequence.images, *new] if runner.starts_over else new
            logits.append(runner.prefill([sequence]))
    return torch.cat(logits)


def _run_model(model: PreTrainedModel, tokens: ChatTokens, steps: list[Step]) -> torch.Tensor:
    """Return the logits after each step in one forward without a cache, (steps, vocabulary)."""
    input_ids = torch.tensor([[i for ids, _ in steps for i in ids]], device=model.device)
    logits = compute_logits(model, tokens.architecture, input_ids, [picture for _, some in steps for picture in some])
    ends = torch.tensor([len(ids) for ids, _ in steps]).cumsum(0) - 1
    return logits[0, ends].float()


def describe_model(section: ModelSection) -> Iterator[str]:
    """Yield a line for each thing that was found. Raise `ModelError` if the model cannot be played here, `ConfigError`
    if there is no such folder."""
    config, processor = loading.load_processor(section)
    architecture = Architecture(config, processor)
    architecture.check_forward()
    yield f"model          {architecture.model_type}: {type(config).__name__}, {type(processor).__name__}"
    yield f"plays          {describe_way(architecture)}"
    tokens = ChatTokens(processor, config, loading.load_generation_config(section))
    template = tokens.template
    shown = [(size, architecture.preprocess(Image.new("RGB", size)).tokens) for size in SHOWN]
    yield f"pictures       {', '.join(f'{w} x {h}: {count} tokens' for (w, h), count in shown)}"
    yield f"end of reply   {template.end}" + ("" if template.writes_end else " (the chat template writes none)")
    listed = f"its calls are read back ({', '.join(sorted(template.taught))})"
    unlisted = "no call that it teaches can be read back, so viewbox's own text teaches the tools"
    takes = "parts only" if template.in_parts else "strings and parts"
    yield f"chat template  takes {takes}; {listed if template.taught else unlisted}"
    role = "in the tool's message" if template.tool_role else "in a user message"
    yield f"tool pictures  {role}" + (", consecutive ones merged" if template.merges else "")
    yield from (f"note: {note}" for note in template.notes)
    folder = Path(find_model_folder(str(section.name)) or "")
    if folder.is_dir() and not any(file for kind in ("safetensors", "bin") for file in folder.glob(f"*.{kind}")):
        yield "weights        none in the folder: only its config, processor and chat template were asked"
        return
    model = loading.load_model(section)
    result = compare(model, tokens)
    if tokens.architecture.failure:
        yield f"note: plays {describe_way(tokens.architecture)}"
    yield (
        f"weights        {str(model.dtype).removeprefix('torch.')}; engine and the model's own forward differ by "
        f"{result.difference:.1e} of the probability of a token (allowed {result.allowed:.1e}; its own forward differs "
        f"from itself by {result.noise:.1e})"
    )
    result.check(tokens)


def describe_way(architecture: Architecture) -> str:
    if (lack := architecture.find_lack()) is not None:
        return f"by its own forward and its own cache, slower (last resort): {lack}"
    kinds = ", ".join(sorted(architecture.masks.kinds))
    states = ", with states at the end of each turn" if architecture.has_states else ""
    return f"on the engine's cache{states} ({kinds})"
