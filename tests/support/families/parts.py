"""What the tiny models of all families are made of: a tokenizer, sizes, weights, a chat template."""

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers as hf

from viewbox.envs.digits import Digits

# How Qwen, Llama 3, Tekken and Cohere cut text before their merges; a digit alone. A newline can merge with the
# punctuation before it, so a placeholder that brings newlines cannot be put between ids that are known already.
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
MERGED = ["?\n\n", ".\n\n", "]\n\n", ":\n\n", "}\n\n", "\n\n"]
TEXT = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 4096,
}  # fmt: skip
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}  # a picture from -1 to 1
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


@dataclass(frozen=True)
class Family:
    """A tiny model of a released family."""

    name: str  # the config's model_type, and what sets it apart where one type has several shapes
    released: str  # the model whose processor, special tokens and template these are
    build: Callable[[int], tuple[Any, Any]]  # seed → a new model, a new processor
    ends: tuple[str, ...]  # tokens that end a reply: eos_token_id of the released generation_config.json
    written_end: str  # what the template writes right after a reply; "" if the next message ends it


def read_template(name: str) -> str:
    """Return a chat template from this folder, without the comment that names its source; from TRL's if not here."""
    own = Path(__file__).parent / "templates" / f"{name}.jinja"
    if own.exists():
        return own.read_text(encoding="utf-8").partition("-#}\n")[2]
    import trl

    return (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


@functools.cache
def train_merges(size: int) -> Any:
    """Train byte-level BPE on prompts of an environment; the vocabulary has `size` tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    env = Digits()
    task = env.tasks[0]
    corpus = [env.build_system_prompt(task), env.user_message(task), *env.demonstration(task, seed=0)]
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    raw.train_from_iterator([*corpus * 2, *MERGED * 50], trainer)
    return raw


def build_tokenizer(
    special: str, ends: str, *, added: str = "", begins: bool = False, names: Mapping[str, str] | None = None
) -> Any:
    """Build a byte-level BPE tokenizer with a family's tokens.

    Args:
        special: special tokens, divided by spaces.
        ends: of these, those that end, pad and begin a text and stand for unknown ones, as many as there are.
        added: tokens of their own that are not special, likewise.
        begins: the one that begins a text comes first in every text (unless `add_special_tokens=False`).
        names: attributes of the tokenizer that its processor reads, such as `image_token`.
    """
    from tokenizers import AddedToken, processors

    raw = copy.deepcopy(train_merges(480))
    raw.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special.split()])
    raw.add_tokens([AddedToken(token, special=False, normalized=False) for token in added.split()])
    given = dict(zip(("eos_token", "pad_token", "bos_token", "unk_token"), ends.split(), strict=False))
    if begins:
        bos = given["bos_token"]
        raw.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, raw.token_to_id(bos))]
        )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=raw,
        extra_special_tokens=dict(names or {}),
        padding_side="left",
        clean_up_tokenization_spaces=False,
        **given,
    )


def get_text_ids(tokenizer: Any) -> dict[str, Any]:
    """Return what the config of the text model has of a tokenizer."""
    ids = {name: getattr(tokenizer, name) for name in ("eos_token_id", "pad_token_id", "bos_token_id")}
    return {"vocab_size": len(tokenizer), **ids}


def build_weights(model_class: Any, config: Any, seed: int) -> Any:
    """Build a model with weights so wide that its logits tell tokens and pictures apart."""
    torch.manual_seed(seed)
    model = model_class(config).float().eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.15)
    return model


def assemble(
    name: str, seed: int, tokenizer: Any, images: Any, *, text: Mapping[str, Any], vision: Mapping[str, Any],
    ids: Mapping[str, str], processor: Mapping[str, Any] = {}, reads_as: str = "", template: str = "", **settings: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Return a family's model and its processor.

    Args:
        name: the family's in transformers' classes.
        seed: of the weights.
        tokenizer: what `build_tokenizer` returned.
        images: its processor of images.
        text: of the text's config, beside `TEXT` and the tokenizer's ids; what is ... is left out.
        vision: the config of its tower.
        ids: the names that the config has for ids of tokens, and the tokens.
        processor: more settings of the processor.
        reads_as: the name in the class of the processor, if that is another family's.
        template: the name of its chat template, if that is another than its own.
        settings: more of the config.
    """
    made = getattr(hf, f"{reads_as or name}Processor")(
        image_processor=images, tokenizer=tokenizer, chat_template=read_template(template or name.lower()), **processor
    )
    text = {key: value for key, value in {**TEXT, **get_text_ids(tokenizer), **text}.items() if value is not ...}
    numbers = {key: tokenizer.convert_tokens_to_ids(token) for key, token in ids.items()}
    config = getattr(hf, f"{name}Config")(text_config=text, vision_config=dict(vision), **numbers, **settings)
    return build_weights(getattr(hf, f"{name}ForConditionalGeneration"), config, seed), made
