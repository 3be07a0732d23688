"""Chat templates are asked before a run depends on them: a rendering is chosen, or they are refused in words."""

import copy
from pathlib import Path

import pytest
import trl
from PIL import Image

from tests.support.tables import each
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.envs.digits import Digits
from viewbox.errors import ModelError
from viewbox.images.ref import ImageRef
from viewbox.records import Message

PICTURE = ImageRef.of(Image.new("L", (64, 32), 9))
SHOWN = "<|vision_start|><|image_pad|><|vision_end|>"
RESULT = f"<tool_response>\nzoomed{SHOWN}\n</tool_response>"
TURN = "<|im_end|>\n<|im_start|>assistant\n"
# ChatML in pieces: what a message may hold, one message, and what begins the next reply.
PARTS = (
    "{%- macro parts(content) %}{% if content is string %}{{ content }}{% else %}{% for part in content %}"
    "{{ '" + SHOWN + "' if part.type == 'image' else part.text }}{% endfor %}{% endif %}{% endmacro %}"
)
MESSAGE = "{{ '<|im_start|>' + m.role + '\n' }}{{ parts(m.content) }}{{ '<|im_end|>\n' }}"
CALLS = "{{% for call in m.tool_calls or () %}}<tool_call>{}</tool_call>{{% endfor %}}"
BEGIN = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"


def chatml(before="", message=MESSAGE, begin=BEGIN):
    """A template with something before each message, or another message."""
    return f"{PARTS}{{% for m in messages %}}{before}{message}{{% endfor %}}{begin}"


def refuse(condition, words="no"):
    return f"{{% if {condition} %}}{{{{ raise_exception('{words}') }}}}{{% endif %}}"


@pytest.fixture
def asked(qwen3):
    """The chat tokens of Qwen3-VL with another template."""

    def ask(template, model=qwen3):
        processor = copy.copy(model.processor)
        processor.chat_template = template
        return ChatTokens(processor, model.model().config)

    return ask


def bundled(name):
    return (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text()


def tail(tokens, *messages):
    """What is put between a reply and the next one, every run of placeholders as one."""
    ids, _ = tokens.encode_observation(messages or [Message("tool", ("zoomed", PICTURE))], ended=True)
    text = tokens.tokenizer.decode(ids)
    while "<|image_pad|><|image_pad|>" in text:
        text = text.replace("<|image_pad|><|image_pad|>", "<|image_pad|>")
    return text


LISTING = "{% if tools and loop.first %}{{ tools | tojson }}{% endif %}"
HERMES = LISTING + CALLS.format("{{ call.function | tojson }}")
WITHOUT_SYSTEM = "{% if not (tools and m.role == 'system') %}" + MESSAGE + "{% endif %}"
TAUGHT = [  # a template that lists the tools, and what it teaches: the calls that it writes, if they are read back
    (chatml(before=LISTING), set()),
    (chatml(before=HERMES), {"hermes", "native"}),
    (chatml(before=HERMES, message=WITHOUT_SYSTEM), set()),  # the system message is dropped
    *(
        (chatml(before=LISTING + CALLS.format(written)), taught)
        for written, taught in (
            ("{{ call.function.name }}{{ call.function.arguments | tojson }}", {"native"}),
            ("{{ call.function.name }} with {{ call.function.arguments | tojson }}", set()),  # not read
            ("{{ call.function.name }}{}", set()),  # the arguments are dropped
            ("{{ call.function.name | reverse }}{{ call.function.arguments | tojson }}", set()),
        )
    ),
]


@each("template, taught", TAUGHT)
def test_a_template_lists_the_tools_where_the_call_it_writes_is_read_back(asked, template, taught):
    assert asked(template).template.taught == taught


def test_a_template_that_refuses_tools_is_given_the_text_of_the_prompts(asked):
    tokens, env = asked(refuse("tools") + chatml()), Digits()
    ids, _ = tokens.encode_prompt(env.reset(env.tasks[0], seed=0).messages, env.tool_schemas)
    assert '"name": "zoom"' in tokens.tokenizer.decode(ids)


# ---------------------------------------------------------------------- the tool role
GONE = "{% if m.role == 'tool' %}{% set m = {'role': 'tool', 'content': 'gone'} %}{% endif %}"


@each("before", [refuse("m.role == 'tool'"), GONE, ""])  # the last one shows it, but not as a result
def test_where_a_tool_message_is_refused_or_shows_no_image_results_are_user_messages(asked, before):
    tokens = asked(chatml(before=before))
    assert not tokens.template.tool_role
    assert tail(tokens) == f"\n<|im_start|>user\n{RESULT}{TURN}"


def test_tool_messages_that_show_their_image_are_results_and_user_messages_that_may_not_follow_become_one(asked):
    result = "{{ '<|im_start|>tool\n<tool_response>\n' }}{{ parts(m.content) }}{{ '\n</tool_response><|im_end|>\n' }}"
    tokens = asked(chatml(message="{% if m.role == 'tool' %}" + result + "{% else %}" + MESSAGE + "{% endif %}"))
    assert tokens.template.tool_role
    assert tail(tokens) == f"\n<|im_start|>tool\n{RESULT}{TURN}"
    alternate = refuse("not loop.first and m.role == loop.previtem.role", "roles must alternate")
    tokens = asked(chatml(before=alternate + refuse("m.role == 'tool'")))
    both = [Message("tool", ("zoomed", PICTURE)), Message("tool", ("no",))]
    assert tail(tokens, *both) == (f"\n<|im_start|>user\n{RESULT}\n<tool_response>\nno\n</tool_response>{TURN}")


# ---------------------------------------------------------------------- earlier turns
STRIP = "{% if m.role == 'assistant' and not loop.last %}"
STRIP += "{% set m = {'role': 'assistant', 'content': m.content.split('</think>')[-1]} %}{% endif %}"
EMPTY = "{% if m.role == 'assistant' and loop.last %}"  # only the last reply begins with empty thinking
EMPTY += "{% set m = {'role': 'assistant', 'content': '<think>\n\n</think>\n\n' + m.content} %}{% endif %}"


def test_what_a_template_does_to_earlier_turns_changes_nothing_between_a_reply_and_the_next(asked):
    plain = asked(chatml())
    tokens = asked(chatml(before=STRIP))
    assert tail(tokens) == tail(asked(chatml(before=EMPTY))) == tail(plain)
    assert [note for note in tokens.template.notes if "strips the thinking of earlier replies" in note]
    for tokens in (plain, *(asked(bundled(name)) for name in ("qwen3_vl", "qwen2_5_vl", "qwen3_5_nothink_training"))):
        assert tokens.template.notes == []
    for name in ("qwen3_5_think", "qwen3_6", "qwen3_8"):
        tokens = asked(bundled(name))
        assert tail(tokens) == f"\n<|im_start|>user\n{RESULT}{TURN}<think>\n", name
        assert any("changes the text before earlier replies" in note for note in tokens.template.notes), name


# ---------------------------------------------------------------------- refusals
@each("template, complaint", [
    (refuse("true", "roles must alternate"), "cannot render a conversation: roles must alternate"),
    (chatml(message="{{ m.role }}{{ '<|im_end|>' }}"), "leaves out a reply"),
    (chatml(before=refuse("m.role == 'system'", "no system")), "cannot render a system message: no system"),
    (chatml(message="{% if m.role != 'system' %}" + MESSAGE + "{% endif %}"), "leaves out the system message"),
    (chatml().replace(SHOWN, ""), r"writes 0 of <\|image_pad\|> for one image in a user message"),
    (chatml().replace(SHOWN, SHOWN * 2), r"writes 2 of <\|image_pad\|> for one image in a user message"),
    (chatml(before=refuse("m.role == 'tool' or (m.role == 'user' and loop.index0 > 1)")),
    "drops the image of a tool result"),
    (chatml(message=MESSAGE + "{% if m.role == 'user' %}{{ 'round ' ~ loop.index }}{% endif %}"),
    "writes a text after a reply that depends on earlier turns; allowed: always the same text"),
])  # fmt: skip
def test_a_template_that_cannot_be_used_is_refused_in_words(asked, template, complaint):
    with pytest.raises(ModelError, match=complaint) as refusal:
        asked(template)
    assert "`chat_template.jinja` in the model's folder" in str(refusal.value)
