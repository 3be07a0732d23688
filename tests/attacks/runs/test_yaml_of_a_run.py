"""A YAML file of somebody else is limited in size, depth and meaning: whatever it holds ends in a `ConfigError`."""

import time

import pytest

from tests.support.forged_runs import forge_run
from tests.support.tables import each
from viewbox.configs import schema, yaml_reader
from viewbox.configs.yaml_reader import parse, parse_key_values
from viewbox.errors import ConfigError

pytestmark = pytest.mark.timeout(300)


def list_anchors(first, line, count):
    return "\n".join([f"a0: &a0 {first}", *(f"a{n}: &a{n} " + line.format(f"*a{n - 1}") for n in range(1, count))])


HOSTILE = {
    # more than it says
    "438 bytes": list_anchors("[x,x,x,x,x,x,x,x,x]", "[{0},{0},{0},{0},{0},{0},{0},{0},{0}]", 9),
    "six lines": list_anchors("[x,x,x,x,x,x,x,x,x]", "[{0},{0},{0},{0},{0},{0},{0},{0},{0}]", 6),
    "of mappings": list_anchors("{a: x, b: x}", "{{a: {0}, b: {0}, c: {0}, d: {0}}}", 12),
    "of merge keys": list_anchors("{x: 1}", "{{<<: [{0}, {0}, {0}, {0}, {0}]}}", 12),
    "of one merge key": list_anchors("{x: 1}", "{{<<: {0}, a: {0}, b: {0}}}", 16),
    "of long texts": f"a: &a '{'x' * 100_000}'\nb: [{','.join(['*a'] * 5000)}]",
    "in keys": "? &a [x]\n: 1\n? [*a, *a]\n: 2",
    "of itself": "a: &a [*a]",
    "of itself in a mapping": "a: &a {b: *a}",
    "of itself in a merge": "a: &a {<<: *a}",
    "of nothing": "a: *b",
    "a chain": list_anchors("[x]", "[{0}]", 3000),
    "a chain of mappings": list_anchors("{b: 1}", "{{b: {0}}}", 500),
    # depth
    "3,000 brackets": "a: " + "[" * 3000,
    "closed": "a: " + "[" * 3000 + "]" * 3000,
    "braces": "a: " + "{a: " * 3000,
    "100,000 braces": "{" * 100_000,
    "steps": "\n".join(" " * n + "k:" for n in range(300)),
    "dashes": "- " * 3000 + "x",
    "questions": "? " * 3000,
    # values
    "5,000 digits": "a: " + "9" * 5000,
    "101 digits": "a: " + "9" * 101,
    "a fraction of 5,000 digits": "a: " + "9" * 5000 + ".5",
    "hexadecimal": "a: 0x" + "f" * 100_000,
    "leading zeros": "a: 0" + "7" * 5000,
    "octal": "a: 0o" + "7" * 5000,
    "a large exponent": "a: 1e999999",
    "a large exponent below 0": "a: -1e999",
    "truth": "a: !!bool maybe",
    "a number of nothing": "a: !!int ''",
    "a number of text": "a: !!int x",
    "a fraction of text": "a: !!float x",
    "a time": "a: !!timestamp 2026-11-25",
    "bytes": "a: !!binary aGk=",
    "a set": "a: !!set {b}",
    "an order": "a: !!omap [b: 1]",
    "pairs": "a: !!pairs [b: 1]",
    "an object": "a: !!python/object/apply:os.system [id]",
    "a name": "a: !!python/name:os.system",
    "a module": "a: !!python/module:os",
    "a tag": "a: !mine x",
    # characters
    "a zero byte": "a: \0",
    "half a character": "a: \ud800",
    "half an escape": 'a: "\\uD800"',
    "an escape of nothing": 'a: "\\UFFFFFFFF"',
    "an escape too large": 'a: "\\U00110000"',
    "an escape character": "a: \x1b[2J",
    "a tab": "a:\n\t- b",
    "a key twice": "a: 1\na: 2",
    "a key that is a list": "? [a]\n: 1",
    "a key that is a mapping": "? {a: 1}\n: 1",
    "merging a number": "a: {<<: 1}",
    "a wrong version": "%YAML 9.9\n---\na: 1",
    "two documents": "a: 1\n---\nb: 2",
    "an open quote": "a: '",
    "only commas": "[,,,]",
    # size
    "100,000 values": "[" + ",".join("x" * 100_000) + "]",
    "100,000 keys": "\n".join(f"k{n}: 1" for n in range(20_001)),
    "a long file": "#" * 300_000,
    "blank lines": "\n" * 300_000,
}
FINE = {
    "text": ("a: x", {"a": "x"}),
    "numbers": ("a: [1, -2, 3.5, 1e-4, 0x1F]", {"a": [1, -2, 3.5, 1e-4, 31]}),
    "a day": ("a: 2001-99-99\n2001-02-30: b", {"a": "2001-99-99", "2001-02-30": "b"}),
    "long digits of no number": ("a: 1" + "_" * 5000 + "\nb: 1" + ":00" * 9000, None),
    "an equals sign": ("a: =", {"a": "="}),
    "100 digits": ("a: " + "9" * 100, {"a": int("9" * 100)}),
    "truth": ("a: [true, False, null, ~]", {"a": [True, False, None, None]}),
    "an alias": ("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}", {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}),
    "aliases": ("a: &a [1]\nb: [*a, *a]\nc: *a", {"a": [1], "b": [[1], [1]], "c": [1]}),
    "30 deep": ("[" * 30 + "]" * 30, None),
    "an infinity": ("a: .inf", {"a": float("inf")}),
    "a long text": ("a: |\n" + "  line\n" * 5000, {"a": "line\n" * 5000}),
    "5,000 values": ("a: [" + ", ".join(map(str, range(5000))) + "]", {"a": list(range(5000))}),
    "other letters": ("a: Ä ö 頁 🙂", {"a": "Ä ö 頁 🙂"}),
    "windows": ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
    "nothing": ("", None),
}


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


COMMANDS = {  # with a text for each
    "score": "438 bytes", "score --reward": "a time", "reward try": "5,000 digits", "train": "3,000 brackets",
    "rollout": "half an escape", "override": "of itself", "task settings": "5,000 digits",
}  # fmt: skip


@each("command", [*COMMANDS])
def test_every_command_refuses_it(tmp_path, viewbox, monkeypatch, command):
    name = COMMANDS[command]
    monkeypatch.chdir(tmp_path)
    text, run = HOSTILE[name], forge_run(tmp_path / "gift")
    value = text.partition(": ")[2].partition("\n")[0] if name not in ("438 bytes", "of itself") else "&a [*a]"
    (tmp_path / "bad.yaml").write_text(text, errors="surrogatepass")
    if command == "score":
        (run / "config.yaml").write_text(text)
        status, _, err = viewbox("score", "gift")
    elif command == "score --reward":
        status, _, err = viewbox("score", "gift", "--reward", "bad.yaml")
    elif command == "reward try":
        status, _, err = viewbox("reward", "try", "bad.yaml", "--answer", "{}", "--reference", "{}")
    elif command == "train":
        status, _, err = viewbox("train", "bad.yaml", "--dry-run")
    elif command == "rollout":
        status, _, err = viewbox("rollout", "--config", "bad.yaml", "--env", "digits")
    elif command == "override":
        status, _, err = viewbox("train", "quickstart", f"env.noise={value}", "--dry-run")
    else:
        status, _, err = viewbox("rollout", "--env", "digits", "--model", "m", f"env.noise={value}")
    assert status == 2
    assert "error: " in err
    assert "viewbox failed" not in err


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
