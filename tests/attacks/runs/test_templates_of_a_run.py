"""A template that reaches for files or objects of Python is a `ConfigError`; what Jinja offers still works."""

from importlib import resources

import pytest

from tests.support.tables import each
from viewbox.core.prompts.templates import VALUES, Prompts
from viewbox.envs.digits import Digits
from viewbox.errors import ConfigError

HOSTILE = {
    "brackets": "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    "a number of 10,000 digits": "{{ " + "9" * 10_000 + " }}",
    "an include": "{% include '/etc/passwd' %}",
    "an import": "{% import '/etc/passwd' as a %}{{ a }}",
    "an extension": "{% extends 'system' %}",
    "a class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "a format of a class": "{{ '{0.__class__.__mro__}'.format('') }}",
    "a global": "{{ namespace.__init__.__globals__ }}",
    "an attribute": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "an attr filter": "{{ ''|attr('__class__') }}",
    "a function of a range": "{{ range.__call__.__self__ }}",
    "a change": "{{ [].append(1) }}",
}
OWN = {
    "text": ("Go on.", "Go on."),
    "values": ("{{ turn }} of {{ max_turns }}", "2 of 10"),
    "arithmetic": ("{{ max_turns - turn }} left, {{ 100 * turn // max_turns }} %", "8 left, 20 %"),
    "a condition": ("{% if turn > 1 %}later{% else %}first{% endif %}", "later"),
    "a short condition": ("{{ 'a' if turn == 2 else 'b' }}", "a"),
    "a loop": ("{% for i in range(3) %}{{ i }}{{ ', ' if not loop.last }}{% endfor %}", "0, 1, 2"),
    "loops": ("{% for i in range(3) %}{% for j in range(2) %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
        "00 01 10 11 20 21 "),
    "pairs": ("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}", "a=1;b=2;"),
    "loop values": ("{% for i in 'ab' %}{{ loop.index }}/{{ loop.length }}{{ loop.cycle('x', 'y') }} {% endfor %}",
        "1/2x 2/2y "),
    "concatenation": ("{{ 'turn ' ~ turn ~ '.' }}", "turn 2."),
    "a set value": ("{% set left = max_turns - turn %}{{ left }}", "8"),
    "a set block": ("{% set a %}x{{ turn }}{% endset %}{{ a }}{{ a }}", "x2x2"),
    "a namespace": ("{% set n = namespace(s=0) %}{% for i in [1, 2] %}{% set n.s = n.s + i %}{% endfor %}{{ n.s }}",
        "3"),
    "a macro": ("{% macro say(x, y='!') %}{{ x }}{{ y }}{% endmacro %}{{ say('a') }}{{ say('b', '?') }}", "a!b?"),
    "a caller": ("{% macro box() %}[{{ caller() }}]{% endmacro %}{% call box() %}x{% endcall %}", "[x]"),
    "a repeated text": ("{{ '-' * 20 }}", "-" * 20),
    "a rounded share": ("{{ (turn / max_turns)|round(2) }}", "0.2"),
    "a format": ("{{ '%02d/%d' % (turn, max_turns) }} {{ '%s'|format(turn) }} {{ '{:>3}'.format(turn) }}",
        "02/10 2   2"),
    "methods": ("{{ 'a b'.upper().split()|join('-') }}{{ ' x '.strip().replace('x', 'y') }}", "A-By"),
    "filters": ("{{ ['b', 'a']|sort|join(', ')|upper }} {{ 'abc'|length }} {{ none|default('d', true) }}", "A, B 3 d"),
    "lists": ("{{ [1, 2, 3][1:]|first }}{{ [3, 1]|max }}{{ (1, 2)|length }}{{ {'a': [1]}['a'][0] }}", "2321"),
    "maps": ("{{ ['a', 'b']|map('upper')|join }}{{ range(6)|select('divisibleby', 2)|list }}", "AB[0, 2, 4]"),
    "json": ("{{ {'a': [1, 'x']}|tojson }}", '{"a": [1, "x"]}'),
    "indented": ("{{ 'a\nb'|indent(2) }}", "a\n  b"),
    "a filter block": ("{% filter upper %}turn {{ turn }}{% endfilter %}", "TURN 2"),
    "raw": ("{% raw %}{{ x }}{% endraw %}{# said #}", "{{ x }}"),
    "tests": ("{{ turn is even }} {{ turn is defined }} {{ turn in [1, 2] }} {{ max_turns is ge 100000 }}",
        "True True True False"),
    "with": ("{% with a = turn %}{{ a }}{% endwith %}", "2"),
    "a center": ("{{ 'x'|center(5) }}|{{ 'x'.ljust(3) }}|", "  x  |x  |"),
    "a joiner": ("{% set comma = joiner(', ') %}{% for i in 'ab' %}{{ comma() }}{{ i }}{% endfor %}", "a, b"),
    "a long text": ("x" * 50_000, "x" * 50_000),
}  # fmt: skip


@each("source", HOSTILE)
def test_a_hostile_template_is_a_config_error(source):
    with pytest.raises(ConfigError, match=r"templates\.notes") as caught:
        Digits(templates={"notes": source})
    assert caught.value.key == "templates.notes"
    assert len(str(caught.value)) < 5000


@each("source, text", OWN)
def test_a_template_of_the_users_own_works(source, text):
    assert Prompts({"notes": source}).render("notes", turn=2, max_turns=10) == text


@each("name", [*VALUES])
def test_a_default_template_works_as_an_authors_own(name):
    source = (resources.files("viewbox.core.prompts") / f"{name}.j2").read_text()
    assert Prompts({name: source}).render(name, **VALUES[name]) == Prompts().render(name, **VALUES[name])


def test_one_that_fails_in_a_later_turn_is_a_config_error():
    prompts = Prompts({"notes": "{{ 1 / (turn - 7) }}"})
    with pytest.raises(ConfigError, match=r"templates\.notes"):
        prompts.render("notes", turn=7, max_turns=10)
    prompts.render("notes", turn=2, max_turns=10)


def test_a_long_question_passes():
    question = "word " * 30_000
    values = {"images": 1, "view": 0, "switchable": False}
    own = Prompts({"question": "{{ question|trim }}{% if images > 1 %}!{% endif %}"})
    assert own.render("question", question=question, **values) == question.strip()


def test_a_hundred_tools_pass():
    tools = ['{"type": "function"}' * 50] * 100
    own = Prompts({"tools_json": "{% for tool in tools %}{{ loop.index }}. {{ tool }}\n{% endfor %}"})
    assert own.render("tools_json", tools=tools).count("function") == 5000
