# ruff: noqa: E501  (tables: one row a template)
"""Templates of somebody else are bounded in time and memory, and end in a `ConfigError`; a user's own still work."""

import resource
import time
from importlib import resources

import pytest

from viewbox.envs.digits import Digits
from viewbox.envs.prompts.templates import VALUES, Prompts
from viewbox.errors import ConfigError

pytestmark = pytest.mark.timeout(60)
SECONDS, MEGABYTES = 10, 300  # of the processor, on a slow and busy machine; unbounded, these take minutes or gigabytes


def nest(begin, step, depth, end=""):
    return begin + step * depth + end


DOUBLE = "{% set s = 'xxxxxxxxxx' %}"
HOSTILE = {
    # numbers
    "a power of a power": "{{ 9**(9**9) }}",
    "a power": "{{ 10**1000000 }}",
    "a power below 0": "{{ 10**-1000000000 }}",
    "powers in a row": "{% set a = 10**90 %}{{ a*a*a*a*a*a*a*a }}",
    "squares in a loop": "{% set n = namespace(a=9) %}{% for i in range(100) %}{% set n.a = n.a * n.a %}{% endfor %}{{ n.a }}",
    "a number of 10,000 digits": "{{ " + "9" * 10_000 + " }}",
    "a number as text": "{{ ('9' * 4000)|int * 2 }}",
    # long texts
    "a repeated text": "{{ 'x' * 1000000000 }}",
    "its length": "{{ ('x' * 1000000000)|length }}",
    "repeated from the left": "{{ 1000000000 * 'x' }}",
    "a repeated list": "{{ [0] * 1000000000 }}",
    "repeated twice": "{{ ('x' * 100000) * 100000 }}",
    "the center": "{{ 'x'.center(1000000000) }}",
    "the center filter": "{{ 'x'|center(1000000000) }}",
    "ljust": "{{ 'x'.ljust(1000000000) }}",
    "rjust": "{{ 'x'.rjust(1000000000)|length }}",
    "zfill": "{{ 'x'.zfill(1000000000) }}",
    "expandtabs": "{{ '\t'.expandtabs(1000000000) }}",
    "a width": "{{ '%1000000000d' % 1 }}",
    "a width of its own": "{{ '%*d' % (1000000000, 1) }}",
    "a precision": "{{ '%.1000000000f' % 1.0 }}",
    "a width in a filter": "{{ '%1000000000s'|format('x') }}",
    "a width in format": "{{ '{:1000000000}'.format(1) }}",
    "a nested width": "{{ '{:{}}'.format(1, 1000000000) }}",
    "a precision in format": "{{ '{:.1000000000f}'.format(1.0) }}",
    "format_map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "many places": "{{ ('{0}' * 5000).format('x' * 100000) }}",
    "many signs": "{{ ('%(a)s' * 5000) % {'a': 'x' * 100000} }}",
    "join": "{{ ('x' * 50000).join('y' * 50000) }}",
    "the join filter": "{{ ('y' * 50000)|join('x' * 50000) }}",
    "join with a range": "{{ range(10000)|join('x' * 100000) }}",
    "join with a keyword": "{{ range(10000)|join(d='x' * 100000) }}",
    "join of a map": "{{ range(10000)|map('string')|join('x' * 100000) }}",
    "replace": "{{ ('x' * 50000).replace('x', 'y' * 50000) }}",
    "replace nothing": "{{ ('x' * 50000).replace('', 'y' * 50000) }}",
    "the replace filter": "{{ ('x' * 50000)|replace('x', 'y' * 50000) }}",
    "replace with keywords": "{{ ('x' * 50000)|replace(old='x', new='y' * 50000) }}",
    "indent": "{{ ('\n' * 50000)|indent(100000000) }}",
    "indent a little": "{{ ('a\n' * 50000)|indent(10000) }}",
    "indent with a text": "{{ ('a\n' * 50000)|indent('x' * 50000) }}",
    "wordwrap": "{{ ('a ' * 50000)|wordwrap(1, wrapstring='x' * 50000) }}",
    "translate": "{{ ('a' * 50000).translate({97: 'x' * 50000}) }}",
    "truncate": "{{ ('a' * 50000)|truncate(1000000000000, end='x' * 100000) }}",
    "tojson": "{{ range(10000)|list|tojson(indent=10000) }}",
    "a batch": "{{ [1]|batch(1000000000, 'x')|list }}",
    "slices": "{{ [1]|slice(1000000000, 'x')|list }}",
    "round": "{{ 1.5|round(1000000000) }}",
    "lorem": "{{ lipsum(100000000) }}",
    # doubling
    "doubled": nest(DOUBLE, "{% set s = s ~ s %}", 60, "{{ s }}"),
    "doubled with +": nest(DOUBLE, "{% set s = s + s %}", 60, "{{ s }}"),
    "doubled in a block": nest(DOUBLE, "{% set s %}{{ s }}{{ s }}{% endset %}", 60, "{{ s }}"),
    "doubled lists": nest("{% set a = [1] %}", "{% set a = a + a %}", 60, "{{ a|length }}"),
    "lists in lists": nest("{% set a = ['x'] %}", "{% set a = [a, a, a, a, a, a, a, a, a, a] %}", 30, "{{ a }}"),
    "their text": nest("{% set a = ['x'] %}", "{% set a = [a, a, a, a] %}", 60, "{{ a|string|length }}"),
    "tuples in tuples": nest("{% set a = ('x',) %}", "{% set a = (a, a) %}", 80, "{{ {a: 1} }}"),
    "dicts in dicts": nest("{% set a = {} %}", "{% set a = {1: a, 2: a} %}", 80, "{{ a }}"),
    "compared": nest(
        "{% set a = [1] %}{% set b = [1] %}", "{% set a = [a, a] %}{% set b = [b, b] %}", 80, "{{ a == b }}"
    ),
    "contained": nest(
        "{% set a = [1] %}{% set b = [1] %}", "{% set a = [a, a] %}{% set b = [b, b] %}", 80, "{{ a in [b] }}"
    ),
    "with dict()": nest("{% set a = dict() %}", "{% set a = dict(x=a, y=a) %}", 80, "{{ a }}"),
    "with a namespace": nest("{% set n = namespace(a='xx') %}", "{% set n.a = n.a ~ n.a %}", 60, "{{ n.a }}"),
    "with a filter block": nest("", "{% filter replace('x', 'xxxxxxxxxx') %}", 30) + "x" + "{% endfilter %}" * 30,
    "with a cycler": nest("{% set a = 'xx' %}", "{% set a = cycler(a ~ a).next() %}", 60, "{{ a }}"),
    # loops
    "a long range": "{% for i in range(1000000000) %}{% endfor %}",
    "two loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "short loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "five loops": nest("", "{% for a in range(999) %}", 5) + "x" + "{% endfor %}" * 5,
    "loops over a text": "{% set s = 'x' * 9999 %}{% for a in s %}{% for b in s %}{% for c in s %}{% endfor %}{% endfor %}{% endfor %}",
    "a filtered loop": "{% for a in range(9999) if range(9999)|list|length == 3 %}{% endfor %}",
    "a loop of text": "{% for a in range(9999) %}" + "x" * 50_000 + "{% endfor %}",
    "the length of a loop": "{% for a in range(9999) %}{% for b in range(9999) %}{{ loop.length }}{% endfor %}{% endfor %}",
    "a recursive loop": "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "a list of a range": "{{ range(1000000000)|list|length }}",
    "a sum": "{{ range(1000000000)|sum }}",
    "the end of a range": "{{ range(1000000000)|last }}",
    "sorted ranges": "{% for a in range(9999) %}{{ range(9999)|sort|length }}{% endfor %}",
    "mapped ranges": "{% for a in range(9999) %}{{ range(9999)|map('string')|list|length }}{% endfor %}",
    "searches": "{% set s = 'a' * 99999 %}{% for a in range(9999) %}{{ (s ~ 'b') in s }}{% endfor %}",
    "tests": "{% set s = 'a' * 99999 %}{% for a in range(9999) %}{{ s is eq (s ~ 'b') }}{% endfor %}",
    "slices of a list": "{% set s = ('x' * 90000)|list %}{% for a in range(9999) %}{% set b = s[1:] %}{% endfor %}",
    "namespaces in namespaces": nest("{% set n = namespace() %}", "{% set n = namespace(a=n, b=n) %}", 60, "{{ n }}"),
    "dict views": nest("{% set a = {} %}", "{% set a = {1: a, 2: a}.values() %}", 60, "{{ a }}"),
    "a search from the right": "{% set s = 'a' * 90000 %}{% for a in range(99) %}{{ s.rfind('b' ~ s[:40000]) }}{% endfor %}",
    "a split from the right": "{% set s = 'a' * 90000 %}{% for a in range(99) %}{{ s.rsplit('b' ~ s[:40000]) }}{% endfor %}",
    "replaced searches": "{% set s = 'a' * 60000 %}{% for a in range(99) %}{{ s|replace('b' ~ s[:30000], '') }}{% endfor %}",
    "escaped": "{% autoescape true %}{% for a in range(99) %}{{ '&' * 90000 }}{% endfor %}{% endautoescape %}",
    "marked up": "{% autoescape true %}{{ ('&'|e * 90000).join('x' * 90000) }}{% endautoescape %}",
    "unique": "{% for a in range(99) %}{{ (range(9999)|map('string')|unique|list)|length }}{% endfor %}",
    "wrapped words": "{% for a in range(99) %}{{ ('a-' * 90000)|wordwrap(79) }}{% endfor %}",
    "titles": "{% for a in range(99) %}{{ ('a-' * 90000)|title }}{% endfor %}",
    "many arguments": "{% macro f() %}{% endmacro %}{% for a in range(99) %}{{ f(*('x' * 90000)) }}{% endfor %}",
    "long slices": "{% for a in range(9999) %}{{ ('x' * 90000)[1:][1:][1:]|length }}{% endfor %}",
    "comparisons": "{% set a = ('x' * 90000)|list %}{% for i in range(9999) %}{{ a < a }}{% endfor %}",
    # recursion
    "a macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a macro twice": "{% macro f(n) %}{{ f(n - 1) }}{{ f(n - 1) }}{% endmacro %}{{ f(90) }}",
    "a tree of macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a macro of text": "{% macro f() %}{% for i in range(9999) %}"
    + "x" * 50_000
    + "{% endfor %}{% endmacro %}{{ f()|length }}",
    "a block": "{% block a %}{{ self.a() }}{% endblock %}",
    "a caller": "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}{% call f() %}{{ caller() }}{% endcall %}{% endcall %}",
    # a long source
    "brackets": "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    "lists in a row": "{{ " + "[" * 3000 + "]" * 3000 + " }}",
    "sums": "{{ " + "1+" * 20_000 + "1 }}",
    "nots": "{{ " + "not " * 20_000 + "1 }}",
    "blocks in blocks": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "loops in loops": "{% for a in 'x' %}" * 50 + "{% endfor %}" * 50,
    "a million characters": "x" * 1_000_000,
    "filters in a row": "{{ 'x'" + "|upper" * 15_000 + " }}",
    # other files and objects
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
    "loops": (
        "{% for i in range(3) %}{% for j in range(2) %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
        "00 01 10 11 20 21 ",
    ),
    "pairs": ("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}", "a=1;b=2;"),
    "loop values": (
        "{% for i in 'ab' %}{{ loop.index }}/{{ loop.length }}{{ loop.cycle('x', 'y') }} {% endfor %}",
        "1/2x 2/2y ",
    ),
    "concatenation": ("{{ 'turn ' ~ turn ~ '.' }}", "turn 2."),
    "a set value": ("{% set left = max_turns - turn %}{{ left }}", "8"),
    "a set block": ("{% set a %}x{{ turn }}{% endset %}{{ a }}{{ a }}", "x2x2"),
    "a namespace": (
        "{% set n = namespace(s=0) %}{% for i in [1, 2] %}{% set n.s = n.s + i %}{% endfor %}{{ n.s }}",
        "3",
    ),
    "a macro": ("{% macro say(x, y='!') %}{{ x }}{{ y }}{% endmacro %}{{ say('a') }}{{ say('b', '?') }}", "a!b?"),
    "a caller": ("{% macro box() %}[{{ caller() }}]{% endmacro %}{% call box() %}x{% endcall %}", "[x]"),
    "a repeated text": ("{{ '-' * 20 }}", "-" * 20),
    "a rounded share": ("{{ (turn / max_turns)|round(2) }}", "0.2"),
    "a format": (
        "{{ '%02d/%d' % (turn, max_turns) }} {{ '%s'|format(turn) }} {{ '{:>3}'.format(turn) }}",
        "02/10 2   2",
    ),
    "methods": ("{{ 'a b'.upper().split()|join('-') }}{{ ' x '.strip().replace('x', 'y') }}", "A-By"),
    "filters": ("{{ ['b', 'a']|sort|join(', ')|upper }} {{ 'abc'|length }} {{ none|default('d', true) }}", "A, B 3 d"),
    "lists": ("{{ [1, 2, 3][1:]|first }}{{ [3, 1]|max }}{{ (1, 2)|length }}{{ {'a': [1]}['a'][0] }}", "2321"),
    "maps": ("{{ ['a', 'b']|map('upper')|join }}{{ range(6)|select('divisibleby', 2)|list }}", "AB[0, 2, 4]"),
    "json": ("{{ {'a': [1, 'x']}|tojson }}", '{"a": [1, "x"]}'),
    "indented": ("{{ 'a\nb'|indent(2) }}", "a\n  b"),
    "a filter block": ("{% filter upper %}turn {{ turn }}{% endfilter %}", "TURN 2"),
    "raw": ("{% raw %}{{ x }}{% endraw %}{# said #}", "{{ x }}"),
    "tests": (
        "{{ turn is even }} {{ turn is defined }} {{ turn in [1, 2] }} {{ max_turns is ge 100000 }}",
        "True True True False",
    ),
    "with": ("{% with a = turn %}{{ a }}{% endwith %}", "2"),
    "a center": ("{{ 'x'|center(5) }}|{{ 'x'.ljust(3) }}|", "  x  |x  |"),
    "a joiner": ("{% set comma = joiner(', ') %}{% for i in 'ab' %}{{ comma() }}{{ i }}{% endfor %}", "a, b"),
    "a long text": ("x" * 50_000, "x" * 50_000),
}


@pytest.fixture(autouse=True)
def _bounded():
    memory, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    yield
    assert time.process_time() - seconds < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < MEGABYTES * 1024


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_template_is_a_config_error(source):
    with pytest.raises(ConfigError, match=r"templates\.notes") as caught:
        Digits(templates={"notes": source})
    assert caught.value.key == "templates.notes"
    assert len(str(caught.value)) < 5000


@pytest.mark.parametrize(("source", "text"), OWN.values(), ids=OWN)
def test_a_template_of_the_users_own_works(source, text):
    assert Prompts({"notes": source}).render("notes", turn=2, max_turns=10) == text


@pytest.mark.parametrize("name", VALUES)
def test_a_default_template_works_as_an_authors_own(name):
    source = (resources.files("viewbox.envs.prompts") / f"{name}.j2").read_text()
    assert Prompts({name: source}).render(name, **VALUES[name]) == Prompts().render(name, **VALUES[name])


LATER = {
    "a range": "{% if turn > 5 %}{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}{% endif %}",
    "a power": "{% if turn > 5 %}{{ 9**(9**9) }}{% endif %}",
    "a macro": "{% macro f() %}{{ f() }}{% endmacro %}{% if turn > 5 %}{{ f() }}{% endif %}",
    "a division": "{{ 1 / (turn - 7) }}",
    "the turn itself": "{{ 'x' * (10 ** turn) }}",
}


@pytest.mark.parametrize("source", LATER.values(), ids=LATER)
def test_so_is_one_that_waits_for_a_later_turn(source):
    prompts = Prompts({"notes": source})
    with pytest.raises(ConfigError, match=r"templates\.notes"):
        prompts.render("notes", turn=7, max_turns=10)
    prompts.render("notes", turn=2, max_turns=10)


def test_a_long_question_passes():
    question = "word " * 30_000
    values = {"images": 1, "first_image": True, "view": 0, "switchable": False}
    own = Prompts({"question": "{{ question|trim }}{% if images > 1 %}!{% endif %}"})
    assert own.render("question", question=question, **values) == question.strip()


def test_a_hundred_tools_pass():
    tools = ['{"type": "function"}' * 50] * 100
    own = Prompts({"tools_json": "{% for tool in tools %}{{ loop.index }}. {{ tool }}\n{% endfor %}"})
    assert own.render("tools_json", tools=tools).count("function") == 5000
