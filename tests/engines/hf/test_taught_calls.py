"""What the released chat templates write as calls is read back: 100 replies of each, rendered by transformers.

The right values are the arguments that the template was given.
"""

from pathlib import Path

import pytest
import trl
from transformers.utils.chat_template_utils import render_jinja_template

from viewbox.core.parsing.reply import ToolCalls, parse_reply
from viewbox.engines.hf.chat_template import ChatTemplate
from viewbox.utils.frozen import thaw

BUNDLED = Path(trl.__file__).parent / "chat_templates"
OURS = Path(__file__).resolve().parents[2] / "support" / "families" / "templates"
ANY_NATIVE, HERMES, NONE = {"native"}, {"hermes", "native"}, set()
TEMPLATES = {  # the placeholder of an image, and the formats that the template teaches
    "qwen2_5_vl": ("<|image_pad|>", NONE), "qwen3_vl": ("<|image_pad|>", HERMES),
    "qwen3_5_think": ("<|image_pad|>", ANY_NATIVE), "qwen3_5_nothink": ("<|image_pad|>", ANY_NATIVE),
    "qwen3_6": ("<|image_pad|>", ANY_NATIVE), "gemma3": ("<start_of_image>", NONE),
    "gemma4": ("<|image|>", ANY_NATIVE), "gemma4_v5": ("<|image|>", ANY_NATIVE), "smolvlm": ("<image>", NONE),
    "idefics3": ("<image>", NONE), "lfm2_2_5_vl": ("<image>", ANY_NATIVE), "glm4v": ("<|image|>", NONE),
    "glm46v": ("<|image|>", ANY_NATIVE), "mistral3": ("[IMG]", ANY_NATIVE), "internvl": ("<IMG_CONTEXT>", NONE),
    "llava": ("<image>", NONE), "llava_next": ("<image>", NONE), "llava_onevision": ("<image>", NONE),
    "aya_vision": ("<image>", NONE),
}  # fmt: skip
TEXTS = [
    "left", "", "two words", 'said "left"', "it's", "back\\slash", "one\ntwo", "北京 é 👁", "{a: [b]}",
    "a, b = (c)", "<b>bold</b> a < b",
    "null", "12", "true", "  spaced  ", "[TOOL", "```json", "key: value", "'quoted'", "100 %",
]  # fmt: skip
OTHERS = [
    {"count": 3, "share": 0.25, "sure": True}, {"count": -2, "share": 1, "sure": False, "box": [0.1, 0.2, 0.3, 0.4]},
    {"box": [], "info": {"a": {"b": [1, "x", True, None]}, "c": "d"}}, {"info": {}, "names": ["a", "b c", 'd"e']}, {},
]  # fmt: skip
SCHEMA = {
    "type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"},
    "share": {"type": "number"}, "sure": {"type": "boolean"}, "box": {"type": "array", "items": {"type": "number"}},
    "names": {"type": "array", "items": {"type": "string"}}, "info": {"type": "object"}},
}  # fmt: skip
for spec in SCHEMA["properties"].values():
    spec["description"] = ""  # Gemma's template asks for it
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": SCHEMA}}
    for name in ("note", "reset")
]
QUESTION = [{"role": "user", "content": [{"type": "text", "text": "which side?"}]}]


def load(name):
    own = OURS / f"{name}.jinja"
    return (own if own.exists() else BUNDLED / f"{name}.jinja").read_text()


class Processor:
    def __init__(self, name):
        self.template = load(name)

    def apply_chat_template(self, messages, tools=None, tokenize=False, add_generation_prompt=False):
        rendered, _ = render_jinja_template(
            [messages], tools=tools, chat_template=self.template, add_generation_prompt=add_generation_prompt,
            bos_token="<s>", eos_token="</s>",
        )  # fmt: skip
        return rendered[0]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_released_template_teaches_what_is_read_back_from_it(name):
    template = object.__new__(ChatTemplate)
    template.in_parts = False
    template.processor, (template.image, taught) = Processor(name), TEMPLATES[name]
    assert template._find_taught_formats() == taught


@pytest.mark.parametrize("name", [name for name, (_, taught) in TEMPLATES.items() if taught])
def test_a_hundred_replies_that_a_template_writes_are_read_as_they_were_meant(name):
    processor = Processor(name)
    for other in OTHERS:
        for text in TEXTS:
            calls = [("note", {"text": text, **other}), ("reset", {})]
            written = [
                {"id": f"probe{n:04}", "type": "function", "function": {"name": tool, "arguments": arguments}}
                for n, (tool, arguments) in enumerate(calls)
            ]
            messages = [*QUESTION, {"role": "assistant", "content": "", "tool_calls": written}]
            reply = processor.apply_chat_template(messages, TOOLS).rpartition("which side?")[2]
            found = parse_reply(reply, tools=TOOLS)
            assert isinstance(found, ToolCalls), reply
            assert [(one.call.name, thaw(one.call.arguments)) for one in found.calls] == calls, reply
            assert found.errors == ()
