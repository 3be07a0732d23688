"""Does a model work here? What was asked of its config, processor and chat template, and what its weights compute.

`viewbox rollout --model FOLDER --check-model` prints it.
"""

from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from ...configs.sections import ModelSection
from . import loading
from .architectures import Architecture
from .chat_tokens import ChatTokens
from .parity import compare

SIZES = (224, 224), (640, 480), (1024, 1024)  # of the pictures whose tokens are told


def describe_model(section: ModelSection) -> Iterator[str]:
    """Yield a line for each thing that was found.

    Raises:
        ModelError: the model cannot be played here; the message says why.
        ConfigError: there is no such folder.
    """
    config, processor = loading.load_processor(section)
    architecture = Architecture(config, processor)
    architecture.check_forward()
    yield f"model          {architecture.model_type}: {type(config).__name__}, {type(processor).__name__}"
    yield f"plays          {describe_way(architecture)}"
    tokens = ChatTokens(processor, config, loading.load_generation_config(section))
    template = tokens.template
    shown = [(size, architecture.preprocess(Image.new("RGB", size)).tokens) for size in SIZES]
    yield f"pictures       {', '.join(f'{w} x {h}: {count} tokens' for (w, h), count in shown)}"
    yield f"end of reply   {template.end}" + ("" if template.writes_end else " (the chat template writes none)")
    listed = f"its calls are read back ({', '.join(sorted(template.taught))})"
    unlisted = "no call that it teaches can be read back, so viewbox's own text teaches the tools"
    takes = "parts only" if template.in_parts else "strings and parts"
    yield f"chat template  takes {takes}; {listed if template.taught else unlisted}"
    role = "in the tool's message" if template.tool_role else "in a user message"
    yield f"tool pictures  {role}" + (", consecutive ones merged" if template.merges else "")
    yield from (f"note: {note}" for note in template.notes)
    folder = Path(loading.find_model_folder(str(section.name)) or "")
    if folder.is_dir() and not any(one for kind in ("safetensors", "bin") for one in folder.glob(f"*.{kind}")):
        yield "weights        none in the folder: only its config, processor and chat template were asked"
        return
    model = loading.load_model(section)
    found = compare(model, tokens)
    yield (
        f"weights        {str(model.dtype).removeprefix('torch.')}; engine and the model's own forward differ by "
        f"{found.difference:.1e} of the probability of a token (allowed {found.allowed:.1e}; its own forward differs "
        f"from itself by {found.noise:.1e})"
    )
    found.check(tokens)


def describe_way(architecture: Architecture) -> str:
    """Return how the engine plays a model and the trainer learns from it."""
    if (lack := architecture.find_lack()) is not None:
        return f"by its own forward and its own cache, slower (last resort): {lack}"
    kinds = ", ".join(sorted(architecture.layer_kinds))
    if architecture.has_states:
        return f"on the engine's cache, with states at the end of each turn ({kinds})"
    return f"on the engine's cache ({kinds})"
