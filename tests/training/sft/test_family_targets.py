"""The targets of supervised training are what each family's own template writes: calls, text beside them, ends.

The right values are the arguments that a call was given, and the whole conversation as the processor renders it.
"""

import numpy as np
import pytest
from msgspec.structs import replace

from tests.support.families import FAMILIES, build_family
from tests.support.tables import each
from viewbox.core.loop import parse_reply
from viewbox.core.messages import render_tools
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.scripted import ScriptedGenerator
from viewbox.envs.digits import Digits, viewer
from viewbox.images.ref import ImageRef
from viewbox.records import Message, ToolCall
from viewbox.training.sft.episodes import tokenize_conversation, tokenize_episode
from viewbox.training.sft.trainer import compute_token_weights
from viewbox.utils.frozen import thaw

ENV = Digits(max_turns=4)
TOOLS = [thaw(tool) for tool in ENV.tool_schemas]
PICTURE = ImageRef.of(np.full((64, 64, 3), 90, np.uint8))
ARGUMENTS = [{"factor": 2, "center": [0.25, 0.5]}, {"factor": 3.5, "center": [1, 0]}]
MARKS = {  # what a target has for a call of families whose template teaches a syntax of its own
    "qwen3_5": "<function=zoom>\n<parameter=factor>\n2\n</parameter>", "gemma4": "<|tool_call>call:zoom{",
    "gemma4_31b": "<|tool_call>call:zoom{", "mistral3": '[TOOL_CALLS] [{"name": "zoom", "arguments": {',
    "glm46v": "<tool_call>zoom\n<arg_key>factor</arg_key>\n<arg_value>2</arg_value>",
    "lfm2_vl": "<|tool_call_start|>[zoom(factor=2, center=[0.25, 0.5])",
}  # fmt: skip
HERMES = [
    '<tool_call>\n{"name": "zoom", "arguments": {"factor": 2, "center": [0.25, 0.5]}}\n</tool_call>',
    '<tool_call>\n{"name": "zoom", "arguments": {"factor": 3.5, "center": [1, 0]}}\n</tool_call>',
]
DIFFERENT = {  # what the template writes, and what a row has
    "smolvlm": ("Assistant: ", "Assistant:"),  # its prompt ends before the space, which a policy may write
    "idefics3": ("Assistant: ", "Assistant:"), "llava": ("ASSISTANT: ", "ASSISTANT:"),
    "llava_onevision": ("assistant \n", "assistant\n"),  # its prompt ends without the space
    "gemma4": ("<|tool_response><|turn>", "<|tool_response><turn|>\n<|turn>"),  # results are in a user message
    "gemma4_31b": ("<|tool_response><|turn>", "<|tool_response><turn|>\n<|turn>"),
}  # fmt: skip
UNWRITTEN = ("llava", "glm4v", "glm46v")  # after the last reply these templates write no end token


def open_tokens(name):
    model, processor = build_family(name)
    return ChatTokens(processor, model.config, model.generation_config)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param, open_tokens(request.param)


def build_messages(said, count):
    made = tuple(ToolCall(f"call{n:05}", "zoom", arguments) for n, arguments in enumerate(ARGUMENTS[:count]))
    first = [Message("system", ("Look.",)), Message("user", (PICTURE, "Which digit?"))]
    return [*first, Message("assistant", (said,), tool_calls=made)]


def tokenize(tokens, messages):
    return tokenize_conversation(messages, tokens, tools=ENV.tool_schemas, reply_format="native")


def render(tokens, said, count, *later):
    """The ids of a conversation as the processor renders it, or of one whose text teaches and writes Hermes."""
    calls = [
        {"id": f"call{n:05}", "type": "function", "function": {"name": "zoom", "arguments": arguments}}
        for n, arguments in enumerate(ARGUMENTS[:count])
    ]
    system, reply = "Look.", {"content": said, "tool_calls": calls}
    if not tokens.template.taught:
        system += render_tools(TOOLS, "hermes")
        reply = {"content": "\n".join(filter(None, [said, *HERMES[:count]]))}
    messages = [{"role": "system", "content": system}, {"role": "user"}, {"role": "assistant", **reply}, *later]
    for message in messages if tokens.template.in_parts else []:
        message["content"] = [{"type": "text", "text": message.get("content")}]
    messages[1]["content"] = [{"type": "image"}, {"type": "text", "text": "Which digit?"}]
    taught = {"tools": TOOLS} if tokens.template.taught else {}
    return tokens.processor.apply_chat_template(messages, tokenize=False, **taught)


def encode(name, tokens, text, pictures):
    ids = tokens.encode_text(
        text.replace(*DIFFERENT.get(name, ("", ""))), [tokens.pixel_cache.describe(PICTURE)[1]] * pictures
    )
    begin = [tokens.tokenizer.bos_token_id] if tokens._begins else []
    return ids if ids[:1] == begin else [*begin, *ids]


@each("said, count", [(said, count) for said in ("", "Closer.") for count in (1, 2)])
def test_a_target_is_read_back_as_the_calls_that_were_made(family, said, count):
    name, tokens = family
    found = tokenize(tokens, build_messages(said, count))
    text = tokens.decode(found.completion_ids)
    assert all(found.mask)
    assert MARKS.get(name, HERMES[0]) in text
    assert said in text
    assert name not in MARKS or HERMES[0] not in text
    read = parse_reply(ENV, text)
    expected = [("zoom", arguments) for arguments in ARGUMENTS[:count]]
    assert [(one.call.name, thaw(one.call.arguments)) for one in read.calls] == expected
    assert read.errors == ()


@each("said", ["", "Closer."])
def test_prompt_and_target_are_the_tokens_of_the_whole_conversation(family, said):
    name, tokens = family
    found = tokenize(tokens, build_messages(said, 2))
    ids = [*found.prompt_ids, *found.completion_ids]
    text = render(tokens, said, 2)
    if name == "mistral3":  # its template leaves out what is said beside calls
        text = text.replace("[/INST]", f"[/INST]{said}")
    expected = encode(name, tokens, text.rstrip(" "), 1)
    assert ids[: len(ids) - (name in UNWRITTEN)] == expected[: len(ids)]
    assert ids[-1] in tokens.stop_ids


@pytest.mark.parametrize("name", [name for name in MARKS if name != "mistral3"])  # it lists the tools again later on
def test_later_turns_are_the_tokens_of_the_whole_conversation(name):
    tokens = open_tokens(name)
    shown, answer = ("closer now", PICTURE), '{"answer": 3}'
    more = [Message("tool", shown, tool_call_id="call00000", name="zoom"), Message("assistant", (answer,))]
    found = tokenize(tokens, [*build_messages("", 1), *more])
    result = tokens.template.build_tool_result([{"type": "text", "text": shown[0]}, {"type": "image"}])
    text = render(tokens, "", 1, result, {"role": "assistant", "content": answer})
    ids = [*found.prompt_ids, *found.completion_ids]
    assert ids[: len(ids) - (name in UNWRITTEN)] == encode(name, tokens, text, 2)[: len(ids)]


@pytest.mark.parametrize("name", MARKS)
def test_a_demonstration_learns_the_tokens_that_its_record_gets_again_numbers_of_calls_most(name, play):
    """Scripts write Hermes; what is recorded has the template's syntax, and its text alone gives the same tokens."""
    tokens = open_tokens(name)
    looks = [f"Closer.\n{HERMES[0]}", HERMES[1], viewer.write_answer(ENV, ENV.tasks[0])]

    def script(conversation):
        return looks[sum(message.role == "assistant" for message in conversation.messages)]

    (episode,) = play(ENV, [ENV.tasks[0]], ScriptedGenerator(tokens, script))
    said = [turn for turn in episode.turns if turn.role == "assistant"]
    assert [call.name for turn in said for call in turn.tool_calls] == ["zoom", "zoom"]
    assert MARKS[name] in said[0].content
    assert HERMES[0] not in said[0].content
    assert episode.answer is not None
    assert tokenize_episode(replace(episode, tokens=None), ENV, tokens) == episode.tokens
    found = tokenize(tokens, build_messages("I see 4.", 1))
    weights = compute_token_weights(found, tokens, True)
    heavy = [i for i, weight in zip(found.completion_ids, weights, strict=True) if weight > 1]
    text = tokens.tokenizer.decode(heavy).replace(" ", "")  # of JSON, texts as well
    assert "20.250.5" in text or "0.250.52" in text
    assert "4" not in text


@pytest.mark.parametrize(("name", "given", "is_native"), [
    ("gemma4", "a<turn|>b", True), ("gemma4", 'a<|"|>b', False),  # it would end the text early
    ("qwen3_5", "a</parameter>b", True), ("qwen3_5", "a</parameter>\n<parameter=center>b", False),
    ("mistral3", "a</s>[TOOL_CALLS]b", True), ("lfm2_vl", "a<|im_end|>b", True), ("lfm2_vl", 'it\'s "b"\nand', True),
])  # fmt: skip
def test_what_an_argument_holds_ends_neither_the_reply_nor_the_call(name, given, is_native):
    tokens = open_tokens(name)
    call = ToolCall("call00000", "zoom", {"factor": given, "center": [0, 0]})
    said = f"a{tokens.template.end}b"
    found = tokenize(tokens, [*build_messages("", 0)[:2], Message("assistant", (said,), tool_calls=(call,))])
    assert sum(token in tokens.stop_ids for token in found.completion_ids) == 1
    text = tokens.decode(found.completion_ids)
    assert ("<tool_call>\n{" in text) != is_native
    (read,) = parse_reply(ENV, text).calls
    assert read.error is None
    written = read.call.arguments["factor"]
    assert written.replace("< ", "<").replace("[ ", "[") == given
