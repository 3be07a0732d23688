"""YAML of somebody else is limited in size, depth and meaning, and templates reach for no file or object of Python:
whatever they hold ends in a `ConfigError`.
"""

import time
from importlib import resources

import pytest

from tests.support.forged_runs import forge_run
from tests.support.tables import each
from viewbox.configs import schema, yaml_reader
from viewbox.configs.yaml_reader import parse, parse_key_values
from viewbox.core.prompts.templates import VALUES, Prompts
from viewbox.envs.digits import Digits
from viewbox.errors import ConfigError

pytestmark = pytest.mark.timeout(300)


def list_anchors(first, line, count):
    return "\n".join([f"a0: &a0 {first}", *(f"a{n}: &a{n} " + line.format(f"*a{n - 1}") for n in range(1, count))])


HOSTILE = [
    # more than it says
    list_anchors("[x,x,x,x,x,x,x,x,x]", "[{0},{0},{0},{0},{0},{0},{0},{0},{0}]", 9),
    list_anchors("{a: x, b: x}", "{{a: {0}, b: {0}, c: {0}, d: {0}}}", 12),
    list_anchors("{x: 1}", "{{<<: [{0}, {0}, {0}, {0}, {0}]}}", 12),
    f"a: &a '{'x' * 100_000}'\nb: [{','.join(['*a'] * 5000)}]", "? &a [x]\n: 1\n? [*a, *a]\n: 2", "a: &a [*a]",
    "a: &a {<<: *a}", "a: *b", list_anchors("[x]", "[{0}]", 3000),
    # depth
    "a: " + "[" * 3000 + "]" * 3000, "{" * 100_000, "\n".join(" " * n + "k:" for n in range(300)), "- " * 3000 + "x",
    "? " * 3000,
    # values
    "a: " + "9" * 101, "a: " + "9" * 5000 + ".5", "a: 0x" + "f" * 100_000, "a: 0" + "7" * 5000, "a: 1e999999",
    "a: !!bool maybe", "a: !!int ''", "a: !!int x", "a: !!float x", "a: !!timestamp 2026-11-25", "a: !!binary aGk=",
    "a: !!set {b}", "a: !!omap [b: 1]", "a: !!python/object/apply:os.system [id]", "a: !!python/name:os.system",
    "a: !mine x",
    # characters
    "a: \0", "a: \ud800", 'a: "\\uD800"', 'a: "\\UFFFFFFFF"', 'a: "\\U00110000"', "a: \x1b[2J", "a:\n\t- b",
    "a: 1\na: 2", "? [a]\n: 1", "a: {<<: 1}", "%YAML 9.9\n---\na: 1", "a: 1\n---\nb: 2", "a: '", "[,,,]",
    # size
    "[" + ",".join("x" * 100_000) + "]", "\n".join(f"k{n}: 1" for n in range(20_001)), "#" * 300_000, "\n" * 300_000,
]  # fmt: skip
FINE = [
    ("a: [1, -2, 3.5, 1e-4, 0x1F]", {"a": [1, -2, 3.5, 1e-4, 31]}),
    ("a: 2001-99-99\n2001-02-30: b", {"a": "2001-99-99", "2001-02-30": "b"}),
    ("a: 1" + "_" * 5000 + "\nb: 1" + ":00" * 9000, None), ("a: =", {"a": "="}),
    ("a: " + "9" * 100, {"a": int("9" * 100)}), ("a: [true, False, null, ~]", {"a": [True, False, None, None]}),
    ("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}", {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}),
    ("a: &a [1]\nb: [*a, *a]\nc: *a", {"a": [1], "b": [[1], [1]], "c": [1]}), ("[" * 30 + "]" * 30, None),
    ("a: .inf", {"a": float("inf")}), ("a: |\n" + "  line\n" * 5000, {"a": "line\n" * 5000}),
    ("a: [" + ", ".join(map(str, range(5000))) + "]", {"a": list(range(5000))}), ("a: Ä ö 頁 🙂", {"a": "Ä ö 頁 🙂"}),
    ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}), ("", None),
]  # fmt: skip


@each("text", HOSTILE)
def test_a_hostile_text_is_a_config_error_soon(text):
    started = time.process_time()
    with pytest.raises(ConfigError, match=r"f\.yaml") as caught:
        parse(text, "f.yaml")
    assert time.process_time() - started < 10
    assert len(str(caught.value)) < 1000


@each("text, values", FINE)
def test_a_usual_text_is_read(text, values):
    found = parse(text, "f.yaml")[0]
    assert values is None or found == values


@each("text, command", [  # with a text for each
    (HOSTILE[0], ["score", "gift"]), ("a: !!timestamp 2026-11-25", ["score", "gift", "--reward", "bad.yaml"]),
    ("a: " + "[" * 3000, ["train", "bad.yaml", "--dry-run"]),
    ("", ["rollout", "--env", "digits", "--model", "m", "env.noise=&a [*a]"]),
])  # fmt: skip
def test_every_command_refuses_it(tmp_path, viewbox, monkeypatch, text, command):
    monkeypatch.chdir(tmp_path)
    run = forge_run(tmp_path / "gift")
    (run / "config.yaml" if command == ["score", "gift"] else tmp_path / "bad.yaml").write_text(text)
    status, _, err = viewbox(*command)
    assert (status, "error: " in err, "viewbox failed" in err) == (2, True, False)


@each("key", [".".join("a" * 40), ".".join("a" * 10_000), "", ".", "a..b", " . "])
def test_a_key_path_is_limited_too(key):
    with pytest.raises(ConfigError):
        parse_key_values([f"{key}=1"])


def test_a_file_of_a_gigabyte_is_not_read(tmp_path):
    with (tmp_path / "a.yaml").open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(ConfigError, match="1,073,741,824 bytes"):
        yaml_reader.read(tmp_path / "a.yaml")


def test_a_config_of_ones_own_may_be_a_link(tmp_path):
    (tmp_path / "real.yaml").write_text("model: {name: m}\nenv: {name: digits}")
    (tmp_path / "link.yaml").symlink_to("real.yaml")
    assert schema.load(str(tmp_path / "link.yaml")).env.name == "digits"


# ---------------------------------------------------------------------- templates
@each("source", [
    "{{ " + "(" * 5000 + ")" * 5000 + " }}", "{{ " + "9" * 10_000 + " }}", "{% include '/etc/passwd' %}",
    "{% import '/etc/passwd' as a %}{{ a }}", "{% extends 'system' %}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ namespace.__init__.__globals__ }}", "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ ''|attr('__class__') }}", "{{ range.__call__.__self__ }}", "{{ [].append(1) }}",
])  # fmt: skip
def test_a_hostile_template_is_a_config_error(source):
    with pytest.raises(ConfigError, match=r"templates\.notes") as caught:
        Digits(templates={"notes": source})
    assert caught.value.key == "templates.notes"
    assert len(str(caught.value)) < 5000


@each("source, text", [  # what Jinja offers still works
    ("{{ 100 * turn // max_turns }} %", "20 %"), ("x" * 50_000, "x" * 50_000),
    ("{% for i in range(3) %}{{ i }}{{ ', ' if not loop.last }}{% endfor %}", "0, 1, 2"),
    ("{% set n = namespace(s=0) %}{% for i in [1, 2] %}{% set n.s = n.s + i %}{% endfor %}{{ n.s }}", "3"),
    ("{% macro say(x, y='!') %}{{ x }}{{ y }}{% endmacro %}{{ say('a') }}{{ say('b', '?') }}", "a!b?"),
    ("{{ '%02d/%d' % (turn, max_turns) }} {{ 'a b'.upper().split()|join('-') }}", "02/10 A-B"),
    ("{{ {'a': [1, 'x']}|tojson }} {{ turn is even }}", '{"a": [1, "x"]} True'),
])  # fmt: skip
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
