# ruff: noqa: E501 -- a reply stands on its line, word for word
"""Calls as chat templates teach them, well and badly formed: the rows say what each is read as.

A row is a reply and its calls: name and arguments, or name and words of the error. `[…]` names where a case is from: the
tests of vLLM's tool parsers (tests/tool_parsers/test_NAME_tool_parser.py: the case, with tools of ours), transformers'
test_chat_parsing.py, a family's documentation, or a public bug report. The values are written by hand.
"""

import random

from tests.support.tables import each
from viewbox.core.parsing.objects import parse_native_call
from viewbox.core.parsing.reply import Malformed, ParsedAnswer, ToolCalls, parse_reply
from viewbox.records import ToolCall
from viewbox.utils.frozen import thaw

CUT = "cut off"
NAMELESS = "a value has no name"
AFTER = "nothing after"
PARAMETERS = {
    "zoom": {"factor": {"type": "number"}, "center": {"type": "array", "items": {"type": "number"}}},
    "crop": {"box": {"type": "array", "items": {"type": "number"}}},
    "reset": {},
    "note": {
        "text": {"type": "string"},
        "tags": {"type": "array"},
        "sure": {"type": "boolean"},
        "info": {"type": "object"},
        "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "side": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        "slice": {"type": ["integer", "null"]},
        "any": {},
    },
    "lung.find": {"what": {"type": "string"}},
    "chest/find-it": {"what": {"type": "string"}},
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in PARAMETERS.items()
]


def xml(name, *pairs):
    """A call as the template of Qwen3.5 writes it."""
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in pairs)
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


def glm(name, *pairs):
    """A call as the template of GLM-4.5V writes it."""
    inside = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in pairs)
    return f"<tool_call>{name}\n{inside}</tool_call>"


def lfm(calls):
    return f"<|tool_call_start|>[{calls}]<|tool_call_end|>"


def gemma(call):
    return f"<|tool_call>call:{call}<tool_call|>"


ZOOM = [("zoom", {"factor": 2})]
QWEN = [  # parameters as XML tags
    (xml("zoom", ("factor", "2")), ZOOM),
    (xml("note", ("info", '{"width": 10,\n "height": 20}')), [("note", {"info": {"width": 10, "height": 20}})]),
    (xml("zoom", ("factor", "2")).replace("<tool_call>\n", "").replace("\n</tool_call>", ""), ZOOM),  # [vLLM qwen3coder: fallback_no_tags; vllm 25028]
    (xml("zoom", ("factor", "2")).replace("<tool_call>\n", ""), ZOOM),  # [vllm-project/vllm 26345: the opening mark is missing]
    (xml("note", ("size", "null"), ("slice", "None")), [("note", {"size": None, "slice": None})]),
    (xml("note", ("text", "42"), ("any", "42")), [("note", {"text": "42", "any": "42"})]),  # nothing is declared: text
    (xml("note", ("sure", "False")), [("note", {"sure": False})]),  # as the template writes a bool
    (xml("zoom", ("factor", "2 or 3")), [("zoom", {"factor": "2 or 3"})]),
    (xml("zoom", ("factor", "1e999")), [("zoom", {"factor": "1e999"})]),
    (xml("note", ("tags", '["a", "b", 1, true]')), [("note", {"tags": ["a", "b", 1, True]})]),  # [vLLM qwen36_bugs; vllm 43238]
    (xml("note", ("tags", "['python', 'tutorial']")), [("note", {"tags": ["python", "tutorial"]})]),  # [waybarrios/vllm-mlx 63]
    (xml("note", ("info", "{'theme': 'dark', 'size': 14}")), [("note", {"info": {"theme": "dark", "size": 14}})]),  # [same]
    (xml("note", ("tags", "a, b")), [("note", {"tags": "a, b"})]),  # no list, and not made one
    (xml("note", ("text", "class BaseService\\(")), [("note", {"text": "class BaseService\\("})]),  # [vllm 22975]
    (xml("note", ("text", "the tag </parameter> ends it")), [("note", {"text": "the tag </parameter> ends it"})]),
    (xml("nothing", ("factor", "2")), [("nothing", {"factor": "2"})]),  # unknown: the loop says which tools there are
    (f"or not?\n</think>\n\n{xml('zoom', ('factor', '2'))}", ZOOM),  # [vllm 44447: the prompt opened the thinking]
    (xml("zoom", ("factor", "2"), ("factor", "3")), [("zoom", '"factor" is given twice')]),
    (xml("", ("factor", "2")), [("", 'no "name"')]),
    (xml("zoom", ("factor", "2")).replace("</function>", "so there</function>"), [("zoom", "before '<parameter=factor>'")]),
    (xml("zoom", ("factor", "2")).replace("</function>", "</function> so"), [("zoom", AFTER)]),
    ("<function=zoom>\n<parameter=factor>\n2\n</parameter>\n<function=reset>\n</function>", [*ZOOM, ("reset", {})]),
]  # fmt: skip
GLM = [  # arguments as XML tags
    (glm("zoom", ("factor", "2")), ZOOM),
    ("<tool_call>reset\n</tool_call>", [("reset", {})]),  # [vLLM glm47: zero_arg_newline]
    ("<tool_call>zoom<arg_key>factor</arg_key><arg_value>2</arg_value></tool_call>", ZOOM),  # [vLLM glm47: args_same_line]
    (f"{glm('zoom', ('factor', '2'))}\nand I will also\n{glm('reset')}", [*ZOOM, ("reset", {})]),  # [vLLM glm4_moe: mixed_content]
    (glm("note", ("text", "10001"), ("size", "3")), [("note", {"text": "10001", "size": 3})]),  # [Blaizzy/mlx-vlm 2207]
    (glm("zoom", ("factor", "10"), ("center", "[]")), [("zoom", {"factor": 10, "center": []})]),  # [antirez/ds4 569]
    (glm("note", ("sure", "true"), ("size", "null"), ("info", '{"k": 1}')),
     [("note", {"sure": True, "size": None, "info": {"k": 1}})]),  # [sqliteai/warp 61]
    (glm("note", ("text", "true")), [("note", {"text": "true"})]),  # [antirez/ds4 1016]
    (glm("note", ("text", "a < b and <b>bold</b>")), [("note", {"text": "a < b and <b>bold</b>"})]),
    (glm("zoom", ("factor", "2"), ("factor", "3")), [("zoom", "given twice")]),
    ("<tool_call>note\n<arg_key>text</arg_key>\n<arg_value>a</arg_value>\n<arg_key>size\n<arg_value>3</arg_value>\n</tool_call>",
     [("note", "before '<arg_key>size'")]),  # [vLLM glm4_moe: malformed_xml]
    ("<tool_call>note<arg_key>text</arg_key></arg_key><arg_value>x</arg_value></tool_call>", [("note", "not between its tags")]),  # [vllm 54971]
    ("<tool_call>reset</arg_value></tool_call>", [("", "not valid JSON")]),  # [fw-ai-external/python-sdk 119, in the text]
    ("<tool_call>note\n<arg_key>text</arg_key>\n<arg_value>Bei", [("note", CUT)]),
    ("<tool_call>note\n<arg_key>te", [("note", CUT)]),
]  # fmt: skip
MISTRAL = [
    ('[TOOL_CALLS][{"name": "zoom", "arguments":{"factor": 2}}]', ZOOM),  # [vLLM mistral: single_tool_add]
    ('[TOOL_CALLS] [{"name": "zoom", "arguments":{"factor": 2}}]', ZOOM),  # [ml-explore/mlx-lm 1374]
    ('[TOOL_CALLS] [{"arguments":{"name": "John"}, "name": "note"}]', [("note", {"name": "John"})]),  # [vLLM mistral: name_in_argument]
    ('[TOOL_CALLS] [{"name": "zoom", "arguments": {"factor": 2}, "id": "abcdefghi"}]</s>', ZOOM),  # the template of Mistral Small 3.1
    ('[TOOL_CALLS]zoom[CALL_ID]k3d9a0b1c[ARGS]{"factor": 2}', ZOOM),  # mistral-common, tokenizer version 11
    ('[TOOL_CALLS]note[ARGS]{"text": "then [TOOL_CALLS] again"}', [("note", {"text": "then [TOOL_CALLS] again"})]),
    ('[TOOL_CALLS]note{"size": "2"}', [("note", {"size": 2})]),  # no text is allowed: the model is told
    ('[THINK]zoom?[/THINK][TOOL_CALLS]zoom[ARGS]{"factor": 2}', ZOOM),
    ('[TOOL_CALLS] junk [{"name": "zoom", "arguments":{"factor": 2}}]', [("", "not valid JSON")]),  # [vLLM mistral: regex_fallback reads it]
]  # fmt: skip
LFM = [  # Python calls
    (lfm("zoom(factor=2)"), ZOOM),
    (lfm("note(tags=[])"), [("note", {"tags": []})]),
    (lfm("note(text='Martha\\'s', side='\"cool\"')"), [("note", {"text": "Martha's", "side": '"cool"'})]),  # [vLLM lfm2: escaped_string]
    (lfm("lung.find(what='x')"), [("lung.find", {"what": "x"})]),  # [vLLM lfm2: dotted_name; sgl-project/sglang 27614]
    (lfm("note(text='grep -F \"]\" log.txt')"), [("note", {"text": 'grep -F "]" log.txt'})]),  # [vllm 48171: bracket in a string]
    (lfm("note(text='a\nb')"), [("note", {"text": "a\nb"})]),  # [vllm 48171: raw newline]
    (lfm("note(info={\"reminder\": true, \"by\": null})"), [("note", {"info": {"reminder": True, "by": None}})]),  # [sgl-project/sglang 27614: JSON's literals]
    (lfm("zoom(factor=-74.5)"), [("zoom", {"factor": -74.5})]),  # [vllm 48171: negative number]
    (lfm("zoom(factor=+7)"), [("zoom", {"factor": 7})]),  # [sgl-project/sglang 34237]
    (lfm("zoom(center=(0.5, 0.25))"), [("zoom", {"center": [0.5, 0.25]})]),  # [vllm 48171: tuple]
    (lfm("note(from=1)"), [("note", {"from": 1})]),  # [vllm 48171: reserved word; the tool refuses it]
    ("<|tool_call_start|>[zoom(factor=2)] <|tool_call_end|>", ZOOM),  # [vllm 39243]
    (lfm("zoom(True)"), [("zoom", {"factor": True})]),
    (lfm("zoom(factor=2),"), ZOOM),
    (lfm("zoom(2, factor=3)"), [("zoom", "given twice")]),
    (lfm("zoom(factor=2, factor=3)"), [("zoom", "given twice")]),
    (lfm("zoom(center=[0, 1], 2)"), [("zoom", NAMELESS)]),
    (lfm("nothing('Paris', unit='c')"), [("nothing", NAMELESS)]),  # [sgl-project/sglang 34237: 'Paris' must not vanish]
    (lfm("note(**{'text': 'cats'})"), [("note", "cannot be read")]),  # [same]
    (lfm("zoom(factor=1e999)"), [("zoom", "too large")]),  # [same: no Infinity]
    (lfm("note(tags={'urgent', 'bug'})"), [("note", "cannot be read")]),  # [vLLM lfm2: set, read there; JSON has none]
    (lfm("zoom(factor=07)"), [("zoom", "begins with 0")]),  # [vLLM lfm2: leading_zero, read there]
    (lfm("zoom(factor=)"), [("zoom", "a value is missing")]),
    (lfm("zoom(factor=2) and then"), [("zoom", AFTER)]),
    (lfm("note(sure=yes)"), [("note", "may be text or a literal")]),
    ("<|tool_call_start|>[zoom(factor=2), note(text='a", [*ZOOM, ("note", CUT)]),
]  # fmt: skip
GEMMA = [
    (gemma("zoom{factor:2}"), ZOOM),
    (gemma('note{info:{inner:<|"|>value<|"|>},tags:[<|"|>a<|"|>,<|"|>b<|"|>]}'),
     [("note", {"info": {"inner": "value"}, "tags": ["a", "b"]})]),  # [vLLM gemma4: nested; raullenchai/Rapid-MLX 1102]
    (gemma("zoom{factor:108.,center:[22.8]}"), [("zoom", {"factor": 108.0, "center": [22.8]})]),  # [vllm 42047]
    (gemma('chest/find-it{what:<|"|>x<|"|>}'), [("chest/find-it", {"what": "x"})]),
    ("<|tool_call>call:zoom{factor:2}<turn|>", ZOOM),  # [vLLM gemma4: turn_end_closure]
    ("<|tool_call>:call:zoom{factor:2}", ZOOM),  # [vLLM gemma4: colon_prefixed]
    (gemma('note{text:<|"|>She said "hello" loudly<|"|>}'), [("note", {"text": 'She said "hello" loudly'})]),  # [vllm 39069]
    (gemma('note{tags:["ds_1"],info:{"mode": "fast"}}'), [("note", {"tags": ["ds_1"], "info": {"mode": "fast"}})]),  # [vllm 51284]
    (gemma("note{tags:['ds_1']}"), [("note", {"tags": ["ds_1"]})]),  # [same]
    (gemma("note{text:<|\"|>a<|\"|>,side='report.docx'}"), [("note", {"text": "a", "side": "report.docx"})]),  # [ollama/ollama 17882]
    ("[zoom(factor=2), reset()]", [*ZOOM, ("reset", {})]),  # Gemma 3's documentation; [vLLM pythonic: parallel_calls]
    ("I look.\n[zoom(factor=2)]\nThen I see.", ZOOM),
    ('{"name": "zoom", "parameters": {"factor": 2}}', ZOOM),  # Gemma 3's documentation, and Llama 3.2
    ('{"name": "zoom", "parameters": {"factor": 2}}; {"name": "reset", "parameters": {}}', [*ZOOM, ("reset", {})]),  # [vLLM llama3_json: multiple]
    (gemma('note{text:<|"|>a<|"|>size:3}'), [("note", "cannot be read")]),  # [hybridgroup/yzma 243: a comma is missing]
    (gemma('note{text:weather in Tokyo<|"|>}'), [("note", "cannot be read")]),  # [sgl-project/sglang 39240: an opening quote is missing]
    (gemma('note{text:<|"|>sql(<|"|>x<|"|>)<|"|>}'), [("note", "cannot be read")]),  # [vllm 48678: quotes inside]
    (gemma('note{text:<|"|>code }],side:<|"|>file<|"|>}'), [("note", "cannot be read")]),  # [vllm 39440: a closing quote is missing]
    (gemma("note{text:}"), [("note", "a value is missing")]),
    (gemma("note{:[t:[]}"), [("note", "a key")]),  # [vLLM gemma4: malformed_partial_array]
    (gemma("zoom{factor:2,factor:3}"), [("zoom", "given twice")]),
    ("<|tool_call>call:zo", [("", CUT)]),
]  # fmt: skip
KIMI = [  # [moonshotai/Kimi-K2-Instruct: tool_call_guidance.md]
    ('<|tool_calls_section_begin|><|tool_call_begin|>functions.zoom:0<|tool_call_argument_begin|>{"factor": 2}<|tool_call_end|><|tool_calls_section_end|>', ZOOM),
    ('functions.zoom:0{"factor": 2}', ZOOM),  # a server that removes special tokens
    ('<|tool_call_begin|>functions.zoom:0<|tool_call_argument_begin|>2<|tool_call_end|>', [("", "not valid JSON")]),
    ('<|tool_call_begin|>functions.zoom:0<|tool_call_argument_begin|>{"factor"', [("zoom", CUT)]),
]  # fmt: skip
DEEPSEEK = [  # [chat templates of DeepSeek-V3, V3.1 and V3.2; google/adk-python PR 5654]
    ('<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>zoom\n```json\n{"factor": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>', ZOOM),
    ('<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>zoom<｜tool▁sep｜>{"factor": 2}<｜tool▁call▁end｜><｜tool▁call▁begin｜>reset<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>', [*ZOOM, ("reset", {})]),
    ('<|tool_call_begin|>function<|tool_sep|>zoom\n```json\n{"factor": 2}\n```<|tool_call_end|>', ZOOM),
    ('function<｜tool▁sep｜>zoom\n```json\n{"factor": 2}\n```', ZOOM),
    ('zoom<｜tool▁sep｜>{"factor": 2}', ZOOM),
    ('<｜DSML｜function_calls>\n<｜DSML｜invoke name="note">\n<｜DSML｜parameter name="size" string="false">2</｜DSML｜parameter>\n<｜DSML｜parameter name="text" string="true">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>', [("note", {"size": 2, "text": "2"})]),
    ('<｜tool▁call▁begin｜>zoom<｜tool▁sep｜>two<｜tool▁call▁end｜>', [("", "not valid JSON")]),
]  # fmt: skip
HARMONY = [  # [openai/harmony: docs/format.md; lablup/mlxcel 654]
    ('<|channel|>analysis<|message|>{"label": "x"}<|end|><|start|>assistant<|channel|>commentary to=functions.zoom <|constrain|>json<|message|>{"factor": 2}<|call|>', ZOOM),
    ('<|start|>assistant to=functions.zoom<|channel|>commentary json<|message|>{"factor": 2}<|call|>', ZOOM),
    ('<|channel|>analysis to=functions.zoom code<|message|>{"factor": 2}<|call|>', ZOOM),
    ('<|channel|>commentary to=other <|constrain|>json<|message|>{"label": "x"}<|call|>', [("other", {"label": "x"})]),
    ('<|channel|>commentary<|message|>{"label": "x"}<|end|>', [("", 'no "name"')]),  # [NVIDIA/TensorRT-LLM 9256]
    ('commentary to=functions.zoom json{"factor": 2}', ZOOM),
    ('analysisLook closer {"label": "x"}.assistantcommentary to=functions.zoom json{"factor": 2}', ZOOM),
]  # fmt: skip
CLAUDE = [  # [Anthropic's prompt of 2023; the template of MiniMax-M2]
    ('<function_calls>\n<invoke name="zoom">\n<parameter name="factor">2</parameter>\n</invoke>\n</function_calls>', ZOOM),
    ('<minimax:tool_call>\n<invoke name="zoom">\n<parameter name="factor">2</parameter>\n</invoke>\n<invoke name="reset">\n</invoke>\n</minimax:tool_call>', [*ZOOM, ("reset", {})]),
    ('<function_calls><invoke name="zoom">factor=2</invoke></function_calls>', [("zoom", "not between its tags")]),
]  # fmt: skip
LINES = [
    ('Thought: closer\nAction: zoom\nAction Input: {"factor": 2}\nObservation: it is large', ZOOM),  # ReAct (Yao et al. 2023), as LangChain writes it
    ('**Action:** zoom\n**Action Input:** {"factor": 2}', ZOOM),
    ('Action: `zoom`\nAction Input: {"factor": 2}', ZOOM),
    ('✿FUNCTION✿: zoom\n✿ARGS✿: {"factor": 2}', ZOOM),  # Qwen-Agent
    ('<|assistant|>zoom\n{"factor": 2}', ZOOM),  # GLM-4
    ('commentary to="functions.zoom" <|constrain|>json<|message|>{"factor": 2}', ZOOM),
    ('zoom\n{"factor": 2}', ZOOM),  # ChatGLM 3
    ('>>>zoom\n{"factor": 2}', ZOOM),  # Functionary
    ("I look.\nzoom(factor=2)\nreset()", [*ZOOM, ("reset", {})]),
    ("print(zoom(factor=2))", ZOOM),
    ("```tool_code\nprint(zoom(factor=2))\n```", ZOOM),  # Gemma
    ("```tool_code\nprint(default_api.zoom(factor=2))\nprint(reset())\n```", [*ZOOM, ("reset", {})]),  # Gemini
    ("```python\nzoom(factor=2)\n```", ZOOM),
]  # fmt: skip
FAMILIES = {"qwen": QWEN, "glm": GLM, "mistral": MISTRAL, "lfm": LFM, "gemma": GEMMA, "kimi": KIMI}
FAMILIES |= {"deepseek": DEEPSEEK, "harmony": HARMONY, "claude": CLAUDE, "lines": LINES}
ROWS = [(family, *row) for family, rows in FAMILIES.items() for row in rows]
THINKING = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<|channel>thought", "<channel|>"))


def read(text, **options):
    return parse_reply(text, tools=TOOLS, thinking=THINKING, **options)


@each("family, text, wanted", ROWS)
def test_a_call_is_read_as_its_syntax_is_documented(family, text, wanted):
    found = read(text, finish_reason="length" if any(words == CUT for _, words in wanted) else "stop")
    calls = found.calls if isinstance(found, ToolCalls) else ()
    assert [call.call.name for call in calls] == [name for name, _ in wanted]
    for call, (_, said) in zip(calls, wanted, strict=True):
        if isinstance(said, str):
            assert said in (call.error or "")
        else:
            assert (call.error, thaw(call.call.arguments)) == (None, said)


@each("text", [
    "[lung(x)] is what I see", "see [zoom(factor=2)] in the list", "[other(factor=2)]", "a phone call:home{now}",
    "I would call zoom(2) here.", "f(x) = {1}", "zoom(2)\nis what I would do", "zoom(2) or reset()", "other(2)",
    "Action: zoom in", "set it to=left", "<|channel|>analysis<|message|>zoom{1}<|end|>",
])  # fmt: skip
def test_prose_that_looks_like_a_call_is_none(text):
    assert isinstance(read(text), Malformed)


def test_an_answer_beside_a_call_and_one_in_a_list_of_words_are_kept():
    assert read(f'{lfm("reset()")} {{"label": "x"}}').answer == {"label": "x"}
    assert read('[other(1)]\n{"label": "x"}') == ParsedAnswer({"label": "x"})
    assert read('[other({"label": "x"})]') == ParsedAnswer({"label": "x"})


def test_without_tools_only_marks_make_a_call_and_without_the_tools_schemas_a_parameter_stays_text():
    assert isinstance(parse_reply("[zoom(factor=2)]"), Malformed)
    assert isinstance(parse_reply("call:zoom{factor:2}"), ParsedAnswer | Malformed)
    assert parse_reply(lfm("zoom(factor=2)")).calls[0].call == ToolCall("call_0", "zoom", {"factor": 2})
    (call,) = parse_reply(xml("zoom", ("factor", "2"), ("center", "[1, 2]"))).calls
    assert call.call.arguments == {"factor": "2", "center": "[1, 2]"}


@each("said, name", [
    ("zoom<|end|>", "zoom"), ("zoom<|channel|>commentary", "zoom"),  # [pydantic/pydantic-ai 7143, ollama/ollama 12132, vllm 32587]
    ("tool_12</arg_value>", "tool_12"),  # [fw-ai-external/python-sdk 119]
    ("invert()", "invert"), ("invert( )", "invert"), ("lung.find<|call|>", "lung.find"),
    *((name, name) for name in ("zoom", "zoom in", "zoom(2)", "<|end|>", "a < b")),  # arguments are not dropped
])  # fmt: skip
def test_what_is_glued_to_a_name_goes_and_nothing_else(said, name):
    in_text = read(f'<tool_call>{{"name": "{said}", "arguments": {{}}}}</tool_call>').calls[0]
    native = parse_native_call(ToolCall("x", said, "{}"))
    assert (in_text.call.name, native.call.name, in_text.error, native.error) == (name, name, None, None)


def test_calls_of_one_block_count_one_by_one():
    for count in (200, 300):
        found = read(lfm(", ".join(["reset()"] * count)))
        assert (len(found.calls) == count) if count < 256 else (found.kind == "invalid")


def mutate(text, rng):
    """The text with a few of its parts left out, doubled, exchanged or cut off."""
    for _ in range(rng.randint(1, 4)):
        begin, end = sorted(rng.randint(0, len(text)) for _ in range(2))
        end = min(end, begin + 12)
        other = rng.choice(ROWS)[1]
        text = rng.choice([
            text[:begin] + text[end:], text[:end] + text[begin:], text[: max(end, 1)],
            text[:begin] + other[: rng.randint(0, 40)] + text[begin:],
            text[:begin] + rng.choice("{}[]()<>|=:,'\"\\\n \x00é/_") + text[end:],
        ])  # fmt: skip
    return text


def test_three_thousand_mutated_calls_raise_nothing():
    rng = random.Random(44)
    kinds = set()
    for _ in range(3_000):
        text = mutate(rng.choice(ROWS)[1], rng)
        found = read(text, finish_reason=rng.choice(["stop", "length"]), last=rng.random() < 0.5)
        assert isinstance(found, ToolCalls | ParsedAnswer | Malformed)
        kinds.add(type(found))
        for call in found.calls if isinstance(found, ToolCalls) else ():
            assert (call.error is None) == (not isinstance(call.call.arguments, str))
    assert kinds == {ToolCalls, ParsedAnswer, Malformed}
