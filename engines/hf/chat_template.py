"""Tests what a model's chat template can do before a run depends on it, and renders messages with it.

Each test decides how messages are rendered, or refuses the template with a reason:

- *Tool schemas*: does it list them, and can viewbox parse the calls that it writes? Otherwise viewbox's own text is
  added to the system message.
- *Tool role*: does it show a tool message with its image? Otherwise results become user messages, marked as results.
- *Parts*: must the content of a message be a list of parts? Some templates drop a string without an error.
- *End*: does it write an end token after a reply? If not, the tokenizer's own stands there, and `notes` says so.
- *Turns*: may user messages follow each other? Otherwise they are merged.
- *History*: is the text after a reply the same whatever came before? Otherwise the template is refused, because the
  tokens of an episode are only ever appended.
- *Thinking*, *prefix*: does it strip the thinking of earlier replies, or change the text before them? viewbox does
  neither, because it never renders replies; `notes` names the difference.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.parsing.reply import ToolCalls, parse_reply
from ...core.settings import ReplyFormat
from ...errors import ModelError
from ...utils.frozen import thaw

TemplateMessage = dict[str, Any]

REPLY = "what the model said"  # stands in for a reply
THOUGHT = "what the model thought"
SYSTEM: TemplateMessage = {"role": "system", "content": "what the system said"}
USER: TemplateMessage = {"role": "user", "content": [{"type": "text", "text": "q"}]}
ASSISTANT: TemplateMessage = {"role": "assistant", "content": REPLY}
PICTURE: list[TemplateMessage] = [{"type": "text", "text": "p"}, {"type": "image"}]
CALL: Mapping[str, object] = {"word": "left", "count": 2, "box": [0.5, 1], "sure": True}
TYPES = zip(CALL, ("string", "integer", "array", "boolean"), strict=True)
PARAMETERS = {"type": "object", "properties": {name: {"type": kind, "description": ""} for name, kind in TYPES}}
TOOL = {"type": "function", "function": {"name": "probe_tool", "description": "", "parameters": PARAMETERS}}


def refuse(reason: str) -> ModelError:
    way_out = "a template of yours can replace it: `chat_template.jinja` in the model's folder"
    return ModelError(f"the chat template {reason} ({way_out})", key="model.name")


class ChatTemplate:
    """A processor's chat template. Raise `ModelError` if it cannot be used.

    Args:
        image: the placeholder the template writes for an image.
        ends: the texts of the tokens that end a reply, the preferred one first.
        others: other control tokens: one may stand after a reply though no config says that it ends one.
    """

    def __init__(self, processor: Any, image: str, ends: Sequence[str], others: Sequence[str] = ()) -> None:
        self.processor, self.image = processor, image
        self.in_parts = False
        self.in_parts = SYSTEM["content"] not in self._try_render([SYSTEM, USER])
        self.writes_end = True
        self.end = self._find_end_of_reply(ends, others)
        self.named_end = self.end in ends
        self._check_prompt()
        self.taught = self._find_taught_formats()
        self.tool_role = self._can_show_results([{"role": "tool", "content": PICTURE}])
        self.merges = not self._can_show_results([self._build_user_message(PICTURE), self._build_user_message(PICTURE)])
        results = [self.build_tool_result(PICTURE), self.build_tool_result(PICTURE)]
        if not self._can_show_results(self.merge_user_messages(results)):
            raise refuse("drops the image of a tool result, in tool and in user messages")
        self._check_text_after_replies()
        self.notes = self._describe_differences()

    def render(
        self,
        messages: list[TemplateMessage],
        tools: Sequence[Mapping[str, object]] | None = None,
        *,
        prompt: bool = False,
    ) -> str:
        """Return the text of messages; with `prompt`, up to where the next reply begins."""
        if self.in_parts:
            messages = [
                message | {"content": [{"type": "text", "text": message["content"]}]}
                if isinstance(message["content"], str)
                else message
                for message in messages
            ]
        listed = [thaw(tool) for tool in tools] if tools else None
        options: Any = {"tokenize": False, "add_generation_prompt": prompt}
        text: str = self.processor.apply_chat_template(messages, tools=listed, **options)
        return text

    def render_after_reply(self, messages: list[TemplateMessage]) -> str:
        """Return the text between the end token of a reply and the next reply, with these messages in between."""
        conversation = [USER, ASSISTANT, *self.merge_user_messages(messages)]
        return self._get_text_after_reply(self.render(conversation, prompt=True))

    def write_reply(self, text: str, calls: Sequence[Sequence[object]]) -> str | None:
        """Return a reply with calls (names and arguments) as the template writes it from where a prompt ends, perhaps
        with what ends it. None if it is the text alone, or the template begins it in another way than a prompt ends."""
        made = [
            {"id": f"call{place:05}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for place, (name, arguments) in enumerate(calls)
        ]
        reply = {"role": "assistant", "content": text} | ({"tool_calls": made} if made else {})
        prompt = self.render([SYSTEM, USER], [TOOL], prompt=True)
        stand_in, whole = (self._try_render([SYSTEM, USER, one], [TOOL]) for one in (reply | {"content": REPLY}, reply))
        if not whole.startswith(prompt) or (not calls and stand_in.startswith(prompt + REPLY)):
            return None
        dropped = "" if REPLY in stand_in else text
        return dropped + whole.removeprefix(prompt)

    def build_tool_result(self, parts: list[TemplateMessage]) -> TemplateMessage:
        return {"role": "tool", "content": parts} if self.tool_role else self._build_user_message(parts)

    def merge_user_messages(self, messages: list[TemplateMessage]) -> list[TemplateMessage]:
        """Merge consecutive user messages if the template requires it."""
        merged: list[TemplateMessage] = []
        for message in messages:
            if self.merges and merged and message["role"] == merged[-1]["role"] == "user":
                parts = [*merged[-1]["content"], {"type": "text", "text": "\n"}, *message["content"]]
                merged[-1] = {"role": "user", "content": parts}
            else:
                merged.append(message)
        return merged

    def _build_user_message(self, parts: list[TemplateMessage]) -> TemplateMessage:
        before, after = ({"type": "text", "text": tag} for tag in ("<tool_response>\n", "\n</tool_response>"))
        return {"role": "user", "content": [before, *parts, after]}

    def _get_text_after_reply(self, text: str) -> str:
        """Return the part of a rendered text after the last stand-in reply and its end token."""
        after = text.rpartition(REPLY)[2]
        return after.partition(self.end)[2] if self.writes_end else after

    def _try_render(self, messages: list[TemplateMessage], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """Return the rendered text; "" if the template raises any error."""
        try:
            return self.render(messages, tools)
        except Exception:
            return ""

    def _render_or_refuse(self, content: str, messages: list[TemplateMessage]) -> str:
        try:
            return self.render(messages)
        except Exception as error:  # templates may raise anything
            raise refuse(f"cannot render {content}: {error}") from error

    def _find_end_of_reply(self, ends: Sequence[str], others: Sequence[str]) -> str:
        """Return what the template writes first after a reply of `ends`, else of `others`; the preferred end if it
        writes none."""
        _, reply, after = self._render_or_refuse("a conversation", [USER, ASSISTANT]).partition(REPLY)
        present = [end for end in ends if end in after] or [other for other in others if other in after]
        if not reply:
            raise refuse("leaves out a reply")
        self.writes_end = bool(present)
        return min(present, key=after.index) if present else ends[0]

    def _check_prompt(self) -> None:
        if SYSTEM["content"] not in self._render_or_refuse("a system message", [SYSTEM, USER]):
            raise refuse("leaves out the system message")
        count = self._render_or_refuse("an image", [{"role": "user", "content": PICTURE}]).count(self.image)
        if count != 1:
            raise refuse(f"writes {count} of {self.image} for one image in a user message")

    def _find_taught_formats(self) -> frozenset[ReplyFormat]:
        """Return the reply formats that the template teaches, none if a call that it writes cannot be read back."""
        question = [SYSTEM, {"role": "user", "content": PICTURE}]
        listed = self._try_render(question, [TOOL])
        if listed.count(self.image) != 1 or any(word not in listed for word in ("probe_tool", SYSTEM["content"])):
            return frozenset()
        call = {"id": "probecall", "type": "function", "function": {"name": "probe_tool", "arguments": CALL}}
        text = self._try_render([*question, {"role": "assistant", "content": "", "tool_calls": [call]}], [TOOL])
        reply = text.removeprefix(listed)
        parsed = parse_reply(reply, tools=[TOOL])
        calls = parsed.calls if isinstance(parsed, ToolCalls) else ()
        if [(item.call.name, thaw(item.call.arguments)) for item in calls] != [("probe_tool", CALL)]:
            return frozenset()
        return frozenset({"native", "hermes"} if "<tool_call>" in reply and '"arguments"' in reply else {"native"})

    def _can_show_results(self, messages: list[TemplateMessage]) -> bool:
        text = self._get_text_after_reply(self._try_render([USER, ASSISTANT, *messages]))
        images = sum(part["type"] == "image" for message in messages for part in message["content"])
        return "<tool_response>" in text and text.count(self.image) == images

    def _check_text_after_replies(self) -> None:
        turn = [ASSISTANT, *self.merge_user_messages([self.build_tool_result(PICTURE)])]
        once, twice = (self.render([USER, *turn * count], prompt=True) for count in (1, 2))
        if self._get_text_after_reply(once) != self._get_text_after_reply(twice):
            raise refuse(
                "writes a text after a reply that depends on earlier turns; allowed: always the same text, because the "
                "tokens of an episode are only ever appended"
            )

    def _describe_differences(self) -> list[str]:
        prompt = self.render([USER], prompt=True)
        text = self.render([USER, ASSISTANT, *self.merge_user_messages([self.build_tool_result(PICTURE)])])
        thinking = {"role": "assistant", "content": f"<think>\n{THOUGHT}\n</think>\n\n{REPLY}"}
        later = self._try_render([USER, thinking, USER, ASSISTANT, USER])
        changes = [] if text.startswith(prompt + REPLY) else ["changes the text before earlier replies"]
        changes += [] if THOUGHT in later else ["strips the thinking of earlier replies"]
        changes += [] if self.writes_end else [f"writes no end token after replies (here {self.end})"]
        notes = [f"the chat template {change}; here they stay as they were sampled" for change in changes]
        if not self.named_end:
            notes.append(f"the chat template ends replies with {self.end}, which no config names; here it ends them")
        return notes
