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
    (xml("zoom", ("factor", "2.5"), ("center", "[0.1, 0.9]")), [("zoom", {"factor": 2.5, "center": [0.1, 0.9]})]),
    (xml("reset"), [("reset", {})]),
    ("<tool_call>\n<function=reset>\n</function>\n</tool_call>", [("reset", {})]),
    (f"Let me look closer.{xml('zoom', ('factor', '2'))}", ZOOM),  # [vLLM qwen3coder: single_tool_with_content]
    (f"{xml('zoom', ('factor', '2'))}\n{xml('reset')}", [*ZOOM, ("reset", {})]),  # [vLLM qwen3coder: parallel_tools]
    (xml("note", ("info", '{"width": 10,\n "height": 20}')), [("note", {"info": {"width": 10, "height": 20}})]),  # [same]
    (xml("zoom", ("factor", "2")).replace("<tool_call>\n", "").replace("\n</tool_call>", ""), ZOOM),  # [vLLM qwen3coder: fallback_no_tags; vllm 25028]
    (xml("zoom", ("factor", "2")).replace("<tool_call>\n", ""), ZOOM),  # [vllm-project/vllm 26345: the opening mark is missing]
    ("<tool_call>\n<function=note>\n<parameter=text>\nDallas\n<parameter=size>\n3\n</parameter>\n</function>\n</tool_call>",
     [("note", {"text": "Dallas", "size": 3})]),  # [vLLM qwen3coder: missing_closing_parameter_tag]
    ("<tool_call>\n<function=zoom>\n<parameter=factor>\n2\n</function>\n</tool_call>", ZOOM),
    ("<tool_call><function=zoom><parameter=factor>2</parameter></function></tool_call>", ZOOM),
    ("<tool_call>\n<function=zoom>\n<parameter=factor>\n2\n</parameter>\n</tool_call>", ZOOM),  # no </function>
    ("<tool_call>\n<function=zoom>\n<parameter=factor>\n2\n</parameter>\n</function>", ZOOM),  # no </tool_call>
    (xml("note", ("size", "5"), ("side", "left"), ("slice", "42")),
     [("note", {"size": 5, "side": "left", "slice": 42})]),  # [vLLM qwen3coder: anyof_type_conversion]
    (xml("note", ("side", "3")), [("note", {"side": "3"})]),  # text is allowed, so it is text
    (xml("note", ("size", "null"), ("slice", "None")), [("note", {"size": None, "slice": None})]),
    (xml("note", ("text", "null")), [("note", {"text": "null"})]),
    (xml("note", ("text", "42"), ("any", "42")), [("note", {"text": "42", "any": "42"})]),  # nothing is declared: text
    (xml("note", ("sure", "true")), [("note", {"sure": True})]),
    (xml("note", ("sure", "False")), [("note", {"sure": False})]),  # as the template writes a bool
    (xml("note", ("sure", "perhaps")), [("note", {"sure": "perhaps"})]),  # the tool refuses it
    (xml("zoom", ("factor", "two")), [("zoom", {"factor": "two"})]),
    (xml("zoom", ("factor", "2 or 3")), [("zoom", {"factor": "2 or 3"})]),
    (xml("zoom", ("factor", "1e999")), [("zoom", {"factor": "1e999"})]),
    (xml("zoom", ("factor", "")), [("zoom", {"factor": ""})]),
    (xml("note", ("tags", '["a", "b", 1, true]')), [("note", {"tags": ["a", "b", 1, True]})]),  # [vLLM qwen36_bugs; vllm 43238]
    (xml("note", ("tags", "['python', 'tutorial']")), [("note", {"tags": ["python", "tutorial"]})]),  # [waybarrios/vllm-mlx 63]
    (xml("note", ("info", "{'theme': 'dark', 'size': 14}")), [("note", {"info": {"theme": "dark", "size": 14}})]),  # [same]
    (xml("note", ("tags", "a, b")), [("note", {"tags": "a, b"})]),  # no list, and not made one
    (xml("note", ("text", "class BaseService\\(")), [("note", {"text": "class BaseService\\("})]),  # [vllm 22975]
    (xml("note", ("text", "one\ntwo\n\nthree")), [("note", {"text": "one\ntwo\n\nthree"})]),
    (xml("note", ("text", "\n  indented\n")), [("note", {"text": "\n  indented\n"})]),
    (xml("note", ("text", 'said "left" and \'right\'')), [("note", {"text": 'said "left" and \'right\''})]),
    (xml("note", ("text", "北京 é 👁")), [("note", {"text": "北京 é 👁"})]),
    (xml("note", ("text", "a < b && c > d")), [("note", {"text": "a < b && c > d"})]),
    (xml("note", ("text", "the tag </parameter> ends it")), [("note", {"text": "the tag </parameter> ends it"})]),
    (xml("note", ("text", '{"name": "zoom", "arguments": {}}')), [("note", {"text": '{"name": "zoom", "arguments": {}}'})]),
    (xml("lung.find", ("what", "nodule")), [("lung.find", {"what": "nodule"})]),
    (xml("chest/find-it", ("what", "nodule")), [("chest/find-it", {"what": "nodule"})]),
    (xml("nothing", ("factor", "2")), [("nothing", {"factor": "2"})]),  # unknown: the loop says which tools there are
    (xml("zoom<|end|>", ("factor", "2")), [("zoom", {"factor": 2})]),
    ("<tool_call>\n<function=reset()>\n</function>\n</tool_call>", [("reset", {})]),
    (f"<think>{xml('reset')} or not?</think>{xml('zoom', ('factor', '2'))}", ZOOM),
    (f"or not?\n</think>\n\n{xml('zoom', ('factor', '2'))}", ZOOM),  # [vllm 44447: the prompt opened the thinking]
    (xml("zoom", ("factor", "2"), ("factor", "3")), [("zoom", '"factor" is given twice')]),
    (xml("", ("factor", "2")), [("", 'no "name"')]),
    (xml("zoom", ("factor", "2")).replace("</function>", "so there</function>"), [("zoom", "before '<parameter=factor>'")]),
    (xml("zoom", ("factor", "2")).replace("</function>", "</function> so"), [("zoom", AFTER)]),
    ("<tool_call>\n<function=zoom>\nfactor=2\n</function>\n</tool_call>", [("zoom", "before 'factor=2'")]),
    ("<tool_call>\n<function=zoom>\n<parameter=factor>\n2", [("zoom", CUT)]),
    ("<tool_call>\n<function=zoom>\n<parameter=fac", [("zoom", CUT)]),
    ("<tool_call>\n<function=zo", [("", CUT)]),
    ("<function=zoom>\n<parameter=factor>\n2\n</parameter>\n<function=reset>\n</function>", [*ZOOM, ("reset", {})]),
    ('<tool_call>\n{"name": "zoom", "arguments": {"factor": 2}}\n</tool_call>', ZOOM),  # Hermes, though XML was taught
    ('<tool_call>zoom {"factor": 2}</tool_call>', ZOOM),
]  # fmt: skip
GLM = [  # arguments as XML tags
    (glm("zoom", ("factor", "2")), ZOOM),
    (glm("zoom", ("factor", "2"), ("center", "[0.5, 0.5]")), [("zoom", {"factor": 2, "center": [0.5, 0.5]})]),
    ("<tool_call>reset</tool_call>", [("reset", {})]),  # [vLLM glm47: zero_arg_inline]
    ("<tool_call>reset\n</tool_call>", [("reset", {})]),  # [vLLM glm47: zero_arg_newline]
    ("<tool_call>zoom<arg_key>factor</arg_key><arg_value>2</arg_value></tool_call>", ZOOM),  # [vLLM glm47: args_same_line]
    ("<tool_call>zoom\n    <arg_key>factor</arg_key>\n    <arg_value>2</arg_value>\n    </tool_call>", ZOOM),  # [vLLM glm4_moe: single_tool_call]
    (f"{glm('zoom', ('factor', '2'))}\nand I will also\n{glm('reset')}", [*ZOOM, ("reset", {})]),  # [vLLM glm4_moe: mixed_content]
    (f"<think>hm</think>\nI look.\n{glm('zoom', ('factor', '2'))}", ZOOM),  # [vLLM glm4_moe: with_thinking_tags]
    (glm("note", ("text", "北京"), ("size", "3")), [("note", {"text": "北京", "size": 3})]),  # [vLLM glm4_moe: chinese_content]
    (glm("note", ("text", "10001"), ("size", "3")), [("note", {"text": "10001", "size": 3})]),  # [Blaizzy/mlx-vlm 2207]
    (glm("zoom", ("factor", "10"), ("center", "[]")), [("zoom", {"factor": 10, "center": []})]),  # [antirez/ds4 569]
    (glm("note", ("sure", "true"), ("size", "null"), ("info", '{"k": 1}')),
     [("note", {"sure": True, "size": None, "info": {"k": 1}})]),  # [sqliteai/warp 61]
    (glm("note", ("text", "true")), [("note", {"text": "true"})]),  # [antirez/ds4 1016]
    (glm("note", ("text", " a b \n")), [("note", {"text": " a b \n"})]),  # the template adds nothing, so nothing is cut
    (glm("note", ("text", "a < b and <b>bold</b>")), [("note", {"text": "a < b and <b>bold</b>"})]),
    (glm("lung.find", ("what", "x")), [("lung.find", {"what": "x"})]),
    (glm("zoom", ("factor", "2")).removesuffix("</tool_call>"), ZOOM),  # only its closing mark is missing
    (glm("zoom", ("factor", "2"), ("factor", "3")), [("zoom", "given twice")]),
    ("<tool_call>note\n<arg_key>text</arg_key>\n<arg_value>a</arg_value>\n<arg_key>size\n<arg_value>3</arg_value>\n</tool_call>",
     [("note", "before '<arg_key>size'")]),  # [vLLM glm4_moe: malformed_xml]
    ("<tool_call>note<arg_key>text</arg_key></arg_key><arg_value>x</arg_value></tool_call>", [("note", "not between its tags")]),  # [vllm 54971]
    ("<tool_call>reset</arg_value></tool_call>", [("", "not valid JSON")]),  # [fw-ai-external/python-sdk 119, in the text]
    ("<tool_call>note\n<arg_key>text</arg_key>\n<arg_value>Bei", [("note", CUT)]),
    ("<tool_call>note\n<arg_key>te", [("note", CUT)]),
    ("<tool_call>zoom", [("", CUT)]),
    ("<tool_call>I will zoom in</tool_call>", [("", "not valid JSON")]),
    ("<tool_call></tool_call>", [("", "not valid JSON")]),
]  # fmt: skip
MISTRAL = [
    ('[TOOL_CALLS][{"name": "zoom", "arguments":{"factor": 2}}]', ZOOM),  # [vLLM mistral: single_tool_add]
    ('[TOOL_CALLS] [{"name": "zoom", "arguments":{"factor": 2}}]', ZOOM),  # [ml-explore/mlx-lm 1374]
    ('[TOOL_CALLS]  [ {"name":"zoom" , "arguments" : {"factor": 2} } ]', ZOOM),  # [vLLM mistral]
    ('[TOOL_CALLS] [{"arguments":{"factor": 2}, "name": "zoom"}]', ZOOM),  # [vLLM mistral: argument_before_name]
    ('[TOOL_CALLS] [{"arguments":{"name": "John"}, "name": "note"}]', [("note", {"name": "John"})]),  # [vLLM mistral: name_in_argument]
    ('[TOOL_CALLS] [{"name": "zoom", "arguments": {"factor": 2}}, {"name": "reset", "arguments": {}}]', [*ZOOM, ("reset", {})]),  # [vLLM mistral: multiple_tools]
    ('Hello[TOOL_CALLS] [{"name": "zoom", "arguments":{"factor": 2}}]', ZOOM),  # [vLLM mistral: content_before_tool]
    ('[TOOL_CALLS] [{"name": "zoom", "arguments":{"factor": 2}}]\nextra trailing data', ZOOM),  # [vLLM mistral: trailing_data]
    ('[TOOL_CALLS] [{"name": "zoom", "arguments": {"factor": 2}, "id": "abcdefghi"}]</s>', ZOOM),  # the template of Mistral Small 3.1
    ('[TOOL_CALLS] [{"name": "zoom", "arguments":{"factor": 2}}][TOOL_CALLS] [{"name": "reset", "arguments":{}}]', [*ZOOM, ("reset", {})]),  # [vLLM mistral: multiple_bot_tokens raises there]
    ('[TOOL_CALLS]zoom[ARGS]{"factor": 2}', ZOOM),  # the template of Ministral 3
    ('[TOOL_CALLS]zoom[ARGS]{"factor": 2}[TOOL_CALLS]reset[ARGS]{}</s>', [*ZOOM, ("reset", {})]),
    ('[TOOL_CALLS]zoom[CALL_ID]k3d9a0b1c[ARGS]{"factor": 2}', ZOOM),  # mistral-common, tokenizer version 11
    ('[TOOL_CALLS]zoom{"factor": 2}', ZOOM),  # [vLLM mistral: v11 single_tool_add]
    ('[TOOL_CALLS]zoom{"factor": 2}[TOOL_CALLS]note{"text": "a", "size": 6}', [*ZOOM, ("note", {"text": "a", "size": 6})]),  # [vLLM mistral: v11 multiple]
    ('hi{hi[TOOL_CALLS]note{"text": "print(\\"hello\\")\\nre.compile(r\'{}\')"}', [("note", {"text": "print(\"hello\")\nre.compile(r'{}')"})]),  # [vLLM mistral: wrong_json]
    ('[TOOL_CALLS]note[ARGS]{"text": "then [TOOL_CALLS] again"}', [("note", {"text": "then [TOOL_CALLS] again"})]),
    ('[TOOL_CALLS]note[ARGS]{"text": "北京", "info": {"a": [1, {"b": null}]}}', [("note", {"text": "北京", "info": {"a": [1, {"b": None}]}})]),
    ('[TOOL_CALLS]lung.find[ARGS]{"what": "x"}', [("lung.find", {"what": "x"})]),
    ("[TOOL_CALLS]zoom[ARGS]{'factor': 2,}", ZOOM),
    ('[TOOL_CALLS]reset[ARGS]{}, done.', [("reset", {})]),
    ('[TOOL_CALLS]note{"text": "2"}', [("note", {"text": "2"})]),
    ('[TOOL_CALLS]note{"size": "2"}', [("note", {"size": 2})]),  # no text is allowed: the model is told
    ('[THINK]zoom?[/THINK][TOOL_CALLS]zoom[ARGS]{"factor": 2}', ZOOM),
    ('hi{hi[TOOL_CALLS]note{"text": "print(', [("note", CUT)]),  # [vLLM mistral: complex]
    ('[TOOL_CALLS]zoom[ARGS]{"factor": 2, "factor": 3}', [("zoom", "given twice")]),
    ('[TOOL_CALLS]zoom[ARGS]{"factor": NaN}', [("zoom", "NaN")]),
    ('[TOOL_CALLS]zoom[ARGS][2]', [("", "not valid JSON")]),
    ("[TOOL_CALLS]zoom", [("", "not valid JSON")]),  # [vLLM mistral: v11_without_args_skipped]
    ("[TOOL_CALLS] not json at all", [("", "not valid JSON")]),  # [vLLM mistral: regex_fallback_fails]
    ('[TOOL_CALLS] junk [{"name": "zoom", "arguments":{"factor": 2}}]', [("", "not valid JSON")]),  # [vLLM mistral: regex_fallback reads it]
    ('[TOOL_CALLS] [{"name": "zoom", "argu', [("", "not valid JSON")]),
    ("[TOOL_CALLS] []", []),
]  # fmt: skip
LFM = [  # Python calls
    (lfm("zoom(factor=2)"), ZOOM),
    (lfm("note(text='12345')"), [("note", {"text": "12345"})]),  # [vLLM lfm2: simple]
    (lfm("note(text='John Doe', size=37, info={'city': 'San Francisco', 'state': 'CA'}, side=None, sure=True, tags=['John', 'Johnny'])"),
     [("note", {"text": "John Doe", "size": 37, "info": {"city": "San Francisco", "state": "CA"}, "side": None,
                "sure": True, "tags": ["John", "Johnny"]})]),  # [vLLM lfm2: more_types]
    (lfm("reset()"), [("reset", {})]),
    (lfm("note(info={})"), [("note", {"info": {}})]),  # [vLLM lfm2: empty_dict]
    (lfm("note(tags=[])"), [("note", {"tags": []})]),
    (lfm("note(text='Martha\\'s', side='\"cool\"')"), [("note", {"text": "Martha's", "side": '"cool"'})]),  # [vLLM lfm2: escaped_string]
    (lfm('zoom(factor=2), note(text="a"), reset()'), [*ZOOM, ("note", {"text": "a"}), ("reset", {})]),  # [vLLM lfm2: parallel_calls]
    (lfm("zoom(factor=2)") + "\nChecking the status.", ZOOM),  # [vLLM lfm2: content_after]
    (lfm("lung.find(what='x')"), [("lung.find", {"what": "x"})]),  # [vLLM lfm2: dotted_name; sgl-project/sglang 27614]
    (lfm("note(text='grep -F \"]\" log.txt')"), [("note", {"text": 'grep -F "]" log.txt'})]),  # [vllm 48171: bracket in a string]
    (lfm("note(text='a\nb')"), [("note", {"text": "a\nb"})]),  # [vllm 48171: raw newline]
    (lfm("note(info={\"reminder\": true, \"by\": null})"), [("note", {"info": {"reminder": True, "by": None}})]),  # [sgl-project/sglang 27614: JSON's literals]
    (lfm("zoom(factor=-74.5)"), [("zoom", {"factor": -74.5})]),  # [vllm 48171: negative number]
    (lfm("zoom(factor=+7)"), [("zoom", {"factor": 7})]),  # [sgl-project/sglang 34237]
    (lfm("zoom(center=(0.5, 0.25))"), [("zoom", {"center": [0.5, 0.25]})]),  # [vllm 48171: tuple]
    (lfm("note(from=1)"), [("note", {"from": 1})]),  # [vllm 48171: reserved word; the tool refuses it]
    ("<|tool_call_start|> [zoom(factor=2)]<|tool_call_end|>", ZOOM),  # [vLLM lfm2: whitespace_after_start_token]
    ("<|tool_call_start|>[zoom(factor=2)] <|tool_call_end|>", ZOOM),  # [vllm 39243]
    ("<|tool_call_start|>[zoom(factor = 2)]<|tool_call_end|>", ZOOM),  # [Liquid AI, constrained generation]
    (lfm("zoom(0.7)"), [("zoom", {"factor": 0.7})]),  # [Liquid AI, constrained generation: set_volume(0.7)]
    (lfm("zoom(2, [0.5, 0.5])"), [("zoom", {"factor": 2, "center": [0.5, 0.5]})]),
    (lfm("zoom(2, center=[0.5, 0.5])"), [("zoom", {"factor": 2, "center": [0.5, 0.5]})]),
    (lfm("note('left')"), [("note", {"text": "left"})]),
    (lfm("zoom(True)"), [("zoom", {"factor": True})]),
    (lfm("zoom(factor=2,)"), ZOOM),
    (lfm("zoom(factor=2),"), ZOOM),
    ("<|tool_call_start|>zoom(factor=2)<|tool_call_end|>", ZOOM),
    ('<|tool_call_start|>[{"name": "zoom", "arguments": {"factor": 2}}]<|tool_call_end|>', ZOOM),  # JSON, if the prompt asks for it
    (f"<think>{lfm('reset()')}</think>{lfm('zoom(factor=2)')}", ZOOM),
    ("<|tool_call_start|>[zoom(factor=2)]", ZOOM),
    (lfm(""), []),  # [vLLM lfm2: empty_tool_call_block]
    (lfm("zoom(2, factor=3)"), [("zoom", "given twice")]),
    (lfm("zoom(factor=2, factor=3)"), [("zoom", "given twice")]),
    (lfm("zoom(center=[0, 1], 2)"), [("zoom", NAMELESS)]),
    (lfm("zoom(1, [0, 1], 3)"), [("zoom", NAMELESS)]),
    (lfm("reset(1)"), [("reset", NAMELESS)]),
    (lfm("nothing('Paris', unit='c')"), [("nothing", NAMELESS)]),  # [sgl-project/sglang 34237: 'Paris' must not vanish]
    (lfm("note(**{'text': 'cats'})"), [("note", "cannot be read")]),  # [same]
    (lfm("zoom(factor=1e999)"), [("zoom", "too large")]),  # [same: no Infinity]
    (lfm("note(tags={'urgent', 'bug'})"), [("note", "cannot be read")]),  # [vLLM lfm2: set, read there; JSON has none]
    (lfm("zoom(factor=07)"), [("zoom", "begins with 0")]),  # [vLLM lfm2: leading_zero, read there]
    (lfm("note(text='sed -n '360,450p' x.py')"), [("note", "a string ends early")]),  # [vLLM lfm2: nested_quote, guessed there]
    (lfm("zoom(factor=2), bad(x=b'z')"), [*ZOOM, ("bad", "cannot be read")]),  # [vLLM lfm2: bad_sibling_call]
    (lfm("zoom(factor=1 + 1)"), [("zoom", "cannot be read")]),
    (lfm("zoom(factor=)"), [("zoom", "a value is missing")]),
    (lfm("zoom(factor=2) and then"), [("zoom", AFTER)]),
    (lfm("note(sure=yes)"), [("note", "may be text or a literal")]),
    ("<|tool_call_start|>[zoom(factor=2), note(text='a", [*ZOOM, ("note", CUT)]),
    ("<|tool_call_start|>[zoom(fac", [("zoom", CUT)]),
    ("<|tool_call_start|>[zo", [("", CUT)]),
]  # fmt: skip
GEMMA = [
    (gemma("zoom{factor:2}"), ZOOM),
    (gemma('note{text:<|"|>London<|"|>}'), [("note", {"text": "London"})]),  # [vLLM gemma4: single_tool_call]
    (gemma('note{text:<|"|>San Francisco<|"|>,side:<|"|>left<|"|>}'), [("note", {"text": "San Francisco", "side": "left"})]),
    (gemma('note{text:<|"|>Paris, France<|"|>}'), [("note", {"text": "Paris, France"})]),  # [vLLM gemma4: comma]
    ('Let me check. ' + gemma("zoom{factor:2}"), ZOOM),
    (gemma("zoom{factor:2}") + gemma("reset{}"), [*ZOOM, ("reset", {})]),
    (gemma('note{info:{inner:<|"|>value<|"|>},tags:[<|"|>a<|"|>,<|"|>b<|"|>]}'),
     [("note", {"info": {"inner": "value"}, "tags": ["a", "b"]})]),  # [vLLM gemma4: nested; raullenchai/Rapid-MLX 1102]
    (gemma("note{sure:true,size:42,any:3.14,side:null}"), [("note", {"sure": True, "size": 42, "any": 3.14, "side": None})]),
    (gemma('note{info:{<|"|>3<|"|>:<|"|>new text<|"|>}}'), [("note", {"info": {"3": "new text"}})]),  # [vLLM gemma4: dict_key]
    (gemma("zoom{factor:108.,center:[22.8]}"), [("zoom", {"factor": 108.0, "center": [22.8]})]),  # [vllm 42047]
    (gemma('note{tags:[[<|"|>a]b<|"|>,<|"|>c<|"|>],<|"|>tail<|"|>]}'), [("note", {"tags": [["a]b", "c"], "tail"]})]),
    (gemma('lung.find{what:<|"|>x<|"|>}'), [("lung.find", {"what": "x"})]),
    (gemma('chest/find-it{what:<|"|>x<|"|>}'), [("chest/find-it", {"what": "x"})]),
    (gemma("reset{}"), [("reset", {})]),
    ("<|tool_call>call:zoom{factor:2}<turn|>", ZOOM),  # [vLLM gemma4: turn_end_closure]
    ("<|tool_call>call:zoom{factor:2}<tool_call|><|tool_response>", ZOOM),  # as the template writes it
    ("<|tool_call>:call:zoom{factor:2}", ZOOM),  # [vLLM gemma4: colon_prefixed]
    ('<|channel>thought\nI look.\n<channel|>call:zoom{factor:2}', ZOOM),  # [vLLM gemma4: bare call after thought]
    ("some prose\ncall:zoom{factor:2}", ZOOM),
    (gemma('note{text:<|"|>She said "hello" loudly<|"|>}'), [("note", {"text": 'She said "hello" loudly'})]),  # [vllm 39069]
    (gemma('note{tags:["ds_1"],info:{"mode": "fast"}}'), [("note", {"tags": ["ds_1"], "info": {"mode": "fast"}})]),  # [vllm 51284]
    (gemma("note{tags:['ds_1']}"), [("note", {"tags": ["ds_1"]})]),  # [same]
    (gemma("note{text:<|\"|>a<|\"|>,side='report.docx'}"), [("note", {"text": "a", "side": "report.docx"})]),  # [ollama/ollama 17882]
    (gemma('note{text:<|"|>line\nline<|"|>}'), [("note", {"text": "line\nline"})]),
    (gemma('note{text:<|"|>back\\slash {b} [c] é<|"|>}'), [("note", {"text": "back\\slash {b} [c] é"})]),
    (gemma("note{side:left}"), [("note", {"side": "left"})]),  # a single word can only be the text
    ("```tool_code\nzoom(factor=2)\n```", ZOOM),  # Gemma 3
    ("```tool_code\nzoom(factor=2)\nreset()\n```", [*ZOOM, ("reset", {})]),
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
    ('<|tool_call>call:note{text:<|"|>London', [("note", CUT)]),  # [vLLM gemma4: incomplete]
    ("<|tool_call>call:zoom{fac", [("zoom", CUT)]),
    ("<|tool_call>call:zo", [("", CUT)]),
]  # fmt: skip
KIMI = [  # [moonshotai/Kimi-K2-Instruct: tool_call_guidance.md]
    ('<|tool_calls_section_begin|><|tool_call_begin|>functions.zoom:0<|tool_call_argument_begin|>{"factor": 2}<|tool_call_end|><|tool_calls_section_end|>', ZOOM),
    ('<|tool_call_begin|>functions.zoom:0<|tool_call_argument_begin|>{"factor": 2}<|tool_call_end|><|tool_call_begin|>functions.reset:1<|tool_call_argument_begin|>{}<|tool_call_end|>', [*ZOOM, ("reset", {})]),
    ('<|tool_call_begin|>zoom<|tool_call_argument_begin|>{"factor": 2}<|tool_call_end|>', ZOOM),
    ('functions.zoom:0{"factor": 2}', ZOOM),  # a server that removes special tokens
    ('<|tool_call_begin|>functions.nothing:0<|tool_call_argument_begin|>{"label": "x"}<|tool_call_end|>', [("functions.nothing", {"label": "x"})]),
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
    ('<invoke name="note"><parameter name="text">a < b</parameter><parameter name="size">3</parameter></invoke>', [("note", {"text": "a < b", "size": 3})]),
    ('<function_calls><invoke name="zoom">factor=2</invoke></function_calls>', [("zoom", "not between its tags")]),
    ('<function=zoom>{"factor": 2}</function>', ZOOM),  # Llama 3.1
]  # fmt: skip
LINES = [
    ('Thought: closer\nAction: zoom\nAction Input: {"factor": 2}\nObservation: it is large', ZOOM),  # ReAct (Yao et al. 2023), as LangChain writes it
    ('Action: nothing\nAction Input: {"label": "x"}', [("nothing", {"label": "x"})]),
    ('Action: zoom\nAction Input:\n```json\n{"factor": 2}\n```', ZOOM),
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
