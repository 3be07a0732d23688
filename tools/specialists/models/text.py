"""`kind: text`: words about a picture, by a model that reads pictures and text.

    specialists:
      ask:     {kind: text, model: some/vlm}
      caption: {kind: text, model: some/vlm, task: caption}
      report:  {kind: text, model: some/vlm, task: report, prompt: "Write the findings of this chest X-ray."}

The model is one of `AutoModelForImageTextToText`, and decodes greedily, so that a call has the same result each time.
A VisionEncoderDecoder, as most open report generators are, reads the picture alone. A `prompt` is the beginning of what
it writes: the task prompt of Donut, with `{question}` in it for `vqa`.
Calls whose tensors have equal shapes are decoded together, so that no padding changes a result.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from ....errors import ConfigError, ToolError, ToolFault
from ...arguments import Picture
from ...tool import Tool
from ..serving import ModelRequest, ServedTool
from ..spec import register_specialist
from .model import NOT_FINITE, ModelSpecialist, SpecialistRunner, Unfamiliar

PROMPTS = {
    "vqa": "{question}",
    "caption": "Describe this picture in one sentence.",
    "report": "Write a report of this picture: first the findings, then the impression.",
}
QUESTION = "{question}"
MAX_QUESTION = 2000  # characters


class TextRunner(SpecialistRunner):
    """Returns the text that a model writes. A request's arguments are (prompt, most new tokens).
    The prompt of a model that reads pictures only is the beginning of what it writes; the usual ones are left out."""

    auto_classes = ("AutoModelForImageTextToText",)
    processor_class = "AutoProcessor"
    sample = ("What is shown?", 1)

    @property
    def reads_text(self) -> bool:
        """Whether the model reads a prompt beside the picture."""
        return str(self.config.model_type) != "vision-encoder-decoder"

    def load_processor(self, name: str, options: Mapping[str, Any]) -> Any:
        """Return the processor; of a VisionEncoderDecoder, which has none, that of pictures, and keep its tokenizer."""
        if self.reads_text:
            self.tokenizer = processor = super().load_processor(name, options)
            return processor
        import transformers

        self.tokenizer = words = transformers.AutoTokenizer.from_pretrained(name, **options)
        ends = {
            "decoder_start": (words.cls_token_id, words.bos_token_id),
            "eos": (words.sep_token_id, words.eos_token_id),
            "pad": (words.pad_token_id, words.eos_token_id),
        }
        settings = self.model.generation_config
        for which, tokens in ends.items():
            known = (getattr(part, f"{which}_token_id", None) for part in (settings, self.config, self.config.decoder))
            token_id = next((token for token in (*known, *tokens) if token is not None), None)
            setattr(settings, f"{which}_token_id", token_id)
        return transformers.AutoImageProcessor.from_pretrained(name, **options)

    def infer(self, requests: Sequence[ModelRequest]) -> Sequence[Any]:
        results: list[Any] = [None] * len(requests)
        groups: dict[Hashable, list[tuple[int, Any]]] = {}
        for place, request in enumerate(requests):
            inputs = self._encode(request)
            _, most = request.arguments
            shapes = tuple(sorted((name, tuple(item.shape)) for name, item in inputs.items()))
            groups.setdefault((most, shapes), []).append((place, inputs))
        for (most, _), members in groups.items():  # type: ignore[misc]
            for (place, _), text in zip(members, self._generate([item for _, item in members], most), strict=True):
                results[place] = text
        return results

    def _encode(self, request: ModelRequest) -> Any:
        """Return the tensors of one request: with the model's chat template if it has one."""
        import torch

        prompt, _ = request.arguments
        (picture,) = self.open_pictures([request])
        if not self.reads_text:
            inputs = self.processor(images=picture, return_tensors="pt")
            if prompt not in PROMPTS.values():  # the usual ones say nothing to it
                begun = self.tokenizer(prompt, add_special_tokens=False).input_ids
                start = [self.model.generation_config.decoder_start_token_id]
                inputs["decoder_input_ids"] = torch.tensor([begun if begun[:1] == start else start + begun])
            return inputs
        if getattr(self.processor, "chat_template", None):
            content = [{"type": "image", "image": picture}, {"type": "text", "text": prompt}]
            said = [{"role": "user", "content": content}]
            return self.processor.apply_chat_template(
                said, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
            )
        return self.processor(images=picture, text=prompt, return_tensors="pt")

    def _generate(self, encoded: Sequence[Any], most: int) -> list[Any]:
        import torch

        tensors = {name: torch.cat([item[name] for item in encoded]) for name in encoded[0]}
        inputs = {
            name: item.to(self.device, self.model.dtype if item.is_floating_point() else None)
            for name, item in tensors.items()
        }
        finite = _build_check(len(encoded))
        tokens = self.model.generate(**inputs, max_new_tokens=most, do_sample=False, logits_processor=[finite])
        begun = inputs.get("decoder_input_ids")
        prompt = inputs.get("input_ids") if begun is None and not self.config.is_encoder_decoder else begun
        if prompt is not None and tokens.shape[1] >= prompt.shape[1]:
            start = tokens[:, : prompt.shape[1]]
            tokens = tokens[:, prompt.shape[1] :] if bool((start == prompt).all()) else tokens
        texts = self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return [ToolFault(NOT_FINITE) if bad else text.strip() for text, bad in zip(texts, finite.bad, strict=True)]


def _build_check(count: int) -> Any:
    """Return a logits processor that remembers in `bad` the rows in which a model gave NaN; it changes nothing."""
    import torch
    from transformers import LogitsProcessor

    class FiniteCheck(LogitsProcessor):
        bad = [False] * count

        def __call__(self, input_ids: Any, scores: Any) -> Any:
            rows = torch.isnan(scores).any(1).tolist()
            self.bad = [before or row for before, row in zip(self.bad, rows, strict=True)]
            return scores

    return FiniteCheck()


@dataclass(frozen=True)
class Write(ServedTool):
    """The tool of a caption or a report: one prompt for every picture."""

    prompt: str = ""
    is_usual: bool = True  # not one of the config
    max_new_tokens: int = 256

    def prepare(self) -> None:
        """Load the model. Raise `ConfigError` if it cannot be loaded, or reads no question."""
        super().prepare()
        if QUESTION in self.prompt and self.is_usual and not getattr(self.server.runner, "reads_text", True):
            key = f"specialists.{self.name}.prompt"
            problem = "null: the model reads pictures only; allowed: what it begins with, with {question} in it"
            raise ConfigError(f"{key} = {problem}", key=key)

    async def __call__(self, image: Picture) -> str:
        """Describe a picture in words."""
        return await self.write(image)

    async def write(self, image: Picture, question: str = "") -> str:
        prompt = self.prompt.replace(QUESTION, question)
        text: str | Unfamiliar = await self.ask(image, (prompt, self.max_new_tokens))
        return f"{text.words}." if isinstance(text, Unfamiliar) else text or "(no words)"


@dataclass(frozen=True)
class AnswerTool(Write):
    async def __call__(self, image: Picture, question: str) -> str:  # type: ignore[override]
        """Answers a question about a picture in words."""
        words = " ".join(question.split())
        if not words or len(words) > MAX_QUESTION:
            raise ToolError(f"{self.name}: question has {len(words)} characters; allowed: 1 to {MAX_QUESTION}")
        return await self.write(image, words)


DESCRIPTIONS = {"vqa": None, "caption": None, "report": "Writes a report of a picture: findings and impression."}


@register_specialist("text")
class TextSpecialist(ModelSpecialist):
    """Words about a picture: any model of `AutoModelForImageTextToText`."""

    task: Literal["vqa", "caption", "report"] = Field(
        default="vqa", description="vqa: the call has a question; caption and report: a picture only"
    )
    prompt: str | None = Field(
        default=None,
        min_length=1,
        description="what the model is told; of vqa with {question} in it; default: by `task`",
    )
    max_new_tokens: Annotated[int, Field(ge=1, description="tokens that are written at most")] = 256

    runner = TextRunner

    def build_tools(self, name: str) -> Sequence[Tool]:
        prompt = self.prompt or PROMPTS[self.task]
        if self.task == "vqa" and QUESTION not in prompt:
            prompt = f"{prompt}\n{QUESTION}"
        kind = AnswerTool if self.task == "vqa" else Write
        words = self.description or DESCRIPTIONS[self.task]
        tool = kind(name, self.get_server(), prompt, self.prompt is None, self.max_new_tokens)
        return [Tool.from_function(tool, name, words, self.max_calls)]
