"""A model's chat template: asked what it can carry before a run depends on it, then rendered with.

Every question has an answer that is acted on, or a refusal in words:

- *Tool schemas*: does it list them, and teach calls that are read? Else our own text stands in the system message.
- *Tool role*: does it show a tool message and its image? Else results are user messages, marked as results.
- *Turns*: may user messages follow each other? Else they become one.
- *History*: is what follows a reply the same whatever came before? Else it is refused: the ids of an episode only grow.
- *Thinking*, *prefix*: does it strip the thinking of earlier replies, or write anew what stood before them? Replies are
  never rendered, so here they stay as they were sampled; `notes` says that the template would do otherwise.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from viewbox.errors import ModelError
from viewbox.frozen import thaw

Wire = dict[str, Any]

REPLY = "what the model said"  # stands in for a reply
THOUGHT = "what the model thought"
SYSTEM: Wire = {"role": "system", "content": "what the system said"}
USER: Wire = {"role": "user", "content": [{"type": "text", "text": "q"}]}
ASSISTANT: Wire = {"role": "assistant", "content": REPLY}
PICTURE: list[Wire] = [{"type": "text", "text": "p"}, {"type": "image"}]
TOOL = {"type": "function", "function": {"name": "probe_tool", "description": "", "parameters": {}}}
HERMES = ("probe_tool", "<tool_call>", '"arguments"')  # what a template writes that teaches calls as they are read


class ChatTemplate:
    """A processor's template.

    `image` is the placeholder it writes for an image, `ends` are the texts of the tokens that end a reply, and
    `tool_images` says whether the model knows images in tool messages. Raises `ModelError` where it cannot be used.
    """

    def __init__(self, processor: Any, image: str, ends: Sequence[str], *, tool_images: bool) -> None:
        self.processor, self.image = processor, image
        self.end = self._end_of_reply(ends)
        self._opening()
        listed = self._asked([SYSTEM, USER], [TOOL])
        self.shows_tools = all(part in listed for part in (*HERMES, SYSTEM["content"]))
        self.tool_role = tool_images and self._shows_results([self._as_tool(PICTURE)])
        self.merges = not self._shows_results([self._as_user(PICTURE), self._as_user(PICTURE)])
        if not self._shows_results(self.joined([self.result(PICTURE), self.result(PICTURE)])):
            raise ModelError("the chat template shows the image of a tool's result in no message")
        self._same_after_every_reply()
        self.notes = self._notes()

    # ------------------------------------------------------------------ rendering
    def render(self, messages: list[Wire], tools: Sequence[Mapping] | None = None, *, prompt: bool = False) -> str:
        return self.processor.apply_chat_template(
            messages,
            tools=[thaw(tool) for tool in tools] if tools else None,
            tokenize=False,
            add_generation_prompt=prompt,
        )

    def after_reply(self, messages: list[Wire]) -> str:
        """What stands between the end token of a reply and the next reply, with these messages in between."""
        return self._after(self.render([USER, ASSISTANT, *self.joined(messages)], prompt=True))

    def result(self, parts: list[Wire]) -> Wire:
        """A tool's result as a message."""
        return self._as_tool(parts) if self.tool_role else self._as_user(parts)

    def joined(self, messages: list[Wire]) -> list[Wire]:
        """The messages, those of the user that follow each other as one where they have to be."""
        found: list[Wire] = []
        for message in messages:
            if self.merges and found and message["role"] == found[-1]["role"] == "user":
                parts = [*found[-1]["content"], {"type": "text", "text": "\n"}, *message["content"]]
                found[-1] = {"role": "user", "content": parts}
            else:
                found.append(message)
        return found

    def _as_tool(self, parts: list[Wire]) -> Wire:
        return {"role": "tool", "content": parts}

    def _as_user(self, parts: list[Wire]) -> Wire:
        before, after = ({"type": "text", "text": tag} for tag in ("<tool_response>\n", "\n</tool_response>"))
        return {"role": "user", "content": [before, *parts, after]}

    def _after(self, text: str) -> str:
        """What follows the last stand-in reply and its end token."""
        return text.rpartition(REPLY)[2].partition(self.end)[2]

    # ------------------------------------------------------------------ what is asked
    def _asked(self, messages: list[Wire], tools: Sequence[Mapping] | None = None) -> str:
        """What the template writes; nothing where it refuses, with whatever error its author chose."""
        try:
            return self.render(messages, tools)
        except Exception:
            return ""

    def _must(self, what: str, messages: list[Wire]) -> str:
        try:
            return self.render(messages)
        except Exception as error:  # templates raise what they like
            raise ModelError(f"the chat template cannot render {what}: {error}") from error

    def _end_of_reply(self, ends: Sequence[str]) -> str:
        """The first of `ends` that stands behind a reply."""
        whole = self._must("a conversation", [USER, ASSISTANT])
        _, there, after = whole.partition(REPLY)
        found = [end for end in ends if end in after]
        if not there or not found:
            named = " or ".join(map(repr, ends))
            raise ModelError(f"the chat template does not end a reply with the tokenizer's end token {named}")
        return min(found, key=after.index)

    def _opening(self) -> None:
        """A system message, and a user's with an image."""
        if SYSTEM["content"] not in self._must("a system message", [SYSTEM, USER]):
            raise ModelError("the chat template leaves out the system message")
        count = self._must("an image", [{"role": "user", "content": PICTURE}]).count(self.image)
        if count != 1:
            raise ModelError(f"the chat template writes {count} of {self.image} for one image in a user message")

    def _shows_results(self, messages: list[Wire]) -> bool:
        """Whether messages after a reply are shown as results, their images with them."""
        text = self._after(self._asked([USER, ASSISTANT, *messages]))
        images = sum(part["type"] == "image" for message in messages for part in message["content"])
        return "<tool_response>" in text and text.count(self.image) == images

    def _same_after_every_reply(self) -> None:
        turn = [ASSISTANT, *self.joined([self.result(PICTURE)])]
        once, twice = (self.render([USER, *turn * count], prompt=True) for count in (1, 2))
        if self._after(once) != self._after(twice):
            raise ModelError(
                "what the chat template writes after a reply depends on the turns before it; allowed: the same always, "
                "for the tokens of an episode only ever grow"
            )

    def _notes(self) -> list[str]:
        """What the template does to earlier turns, and is not done here."""
        opening = self.render([USER], prompt=True)
        whole = self.render([USER, ASSISTANT, *self.joined([self.result(PICTURE)])])
        thinking = {"role": "assistant", "content": f"<think>\n{THOUGHT}\n</think>\n\n{REPLY}"}
        later = self._asked([USER, thinking, USER, ASSISTANT, USER])
        found = [] if whole.startswith(opening + REPLY) else ["writes anew what stands before earlier replies"]
        found += [] if THOUGHT in later else ["strips the thinking of earlier replies"]
        return [f"the chat template {one}; here they stay as they were sampled" for one in found]
