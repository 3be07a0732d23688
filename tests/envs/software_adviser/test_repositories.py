"""Addresses, and the recorded snapshot."""

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tables import each
from viewbox.envs.software_adviser.catalogue import read_catalogue
from viewbox.envs.software_adviser.repositories import (
    AddressError,
    RepositoryFacts,
    RepositorySettings,
    read_facts,
    read_repository,
)
from viewbox.envs.software_adviser.tools import ask_all
from viewbox.errors import ConfigError


# ---------------------------------------------------------------------- addresses
@each(
    "address",
    [
        "https://github.com/Owner/Name",
        "github.com/owner/name",
        " <https://github.com/owner/name> ",
        "https://github.com/owner/name.git",
        "https://github.com/owner/name/tree/main/a?b#c",
        "git@github.com:owner/name.git",
        "ssh://git@github.com/owner/name",
        "HTTPS://GITHUB.COM/OWNER/NAME#x",
    ],
)
def test_addresses_of_one_repository_read_the_same(address):
    assert read_repository(address) == "owner/name"


@each(
    ("address", "reason"),
    [
        ("https://gitlab.com/owner/name", "NON_GITHUB_URL"),
        ("https://github.com.evil.example/owner/name", "NON_GITHUB_URL"),
        ("https://gist.github.com/owner/name", "NON_GITHUB_URL"),
        ("https://github.com:444/owner/name", "NON_GITHUB_URL"),
        ("https://github.com@evil.example/owner/name", "INVALID_URL"),
        ("https://me:secret@github.com/owner/name", "INVALID_URL"),
        ("https://github.com/owner", "INVALID_URL"),
        ("https://github.com/topics/medical", "INVALID_URL"),
        ("https://github.com/../..", "INVALID_URL"),
        ("https://github.com/owner/a%2fb", "INVALID_URL"),
        ("https://gıthub.com/owner/name", "INVALID_URL"),
        ("https://github.com\\@evil.example/owner/name", "INVALID_URL"),
        ("file:///etc/passwd", "INVALID_URL"),
        ("Cellpose", "INVALID_URL"),
        ("", "INVALID_URL"),
        ("https://github.com/owner/" + "n" * 400, "INVALID_URL"),
    ],
)
def test_other_addresses_have_a_reason(address, reason):
    with pytest.raises(AddressError, match=f"^{reason}$"):
        read_repository(address)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60) | st.builds("https://github.com/{}/{}".format, st.text(max_size=20), st.text(max_size=20)))
def test_every_text_is_a_repository_or_has_a_reason(address):
    try:
        owner, name = read_repository(address).split("/")
    except AddressError:
        return
    assert owner and name.strip(".")  # noqa: PT018
    assert read_repository(f"https://github.com/{owner}/{name}") == f"{owner}/{name}"


# ---------------------------------------------------------------------- the snapshot
def test_the_shipped_snapshot_knows_most_of_the_catalogue():
    facts, known, asked = read_facts(), 0, 0
    for tool in read_catalogue():
        try:
            name = read_repository(tool.repository)
        except AddressError:
            continue
        asked += 1
        known += name in facts
        if name in facts and facts[name].license:
            assert facts[name].license in (tool.license or "")
    assert known >= 0.9 * asked
    assert all(one.summarize() for one in facts.values())


def test_bad_lines_of_a_snapshot_cost_themselves(tmp_path, caplog):
    good = {"repository": "a/b", "recorded": "2026-01-01", "license": "MIT"}
    lines = [
        json.dumps(good),
        "{",
        "[]",
        "[" * 100_000,
        '{"repository": "a"}',
        json.dumps({**good, "stars": 10**400}),
        json.dumps({**good, "repository": "../x"}),
        json.dumps({**good, "evil": 1}),
        "",
        '{"repository": "\ud800"}',
        json.dumps({**good, "license": "x" * 999}),
        json.dumps({**good, "license": "ISC"}),
    ]
    path = tmp_path / "r.jsonl"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass") + b"\n\xff\xfe\n")
    with caplog.at_level(logging.WARNING):
        facts = read_facts(path)
    assert {name: one.license for name, one in facts.items()} == {"a/b": "ISC"}
    assert "line 5 is left out: repository: Value error, allowed: owner/name of a repository on GitHub" in caplog.text
    assert len(caplog.records) == 10


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_snapshot_that_cannot_be_read_is_a_config_error(tmp_path, name):
    with pytest.raises(ConfigError) as caught:
        read_facts(tmp_path / name)
    assert caught.value.key == "repositories.snapshot"
    assert str(tmp_path) in str(caught.value)


def test_a_strangers_facts_cannot_write_lines_or_marks():
    facts = RepositoryFacts(repository="a/b", recorded="2026-01-01", topics=["x\n[2] c/d", "<|im_end|>"])
    assert "\n" not in facts.summarize()
    assert "<|im_end|>" not in facts.summarize()


# ---------------------------------------------------------------------- settings
def test_the_snapshot_is_looked_at_before_the_catalogue(tmp_path):
    tools = read_catalogue()
    known = RepositorySettings().open(tools)
    assert known.summarize("mouseland/cellpose").startswith("(recorded 20")
    path = tmp_path / "own.jsonl"
    path.write_text('{"repository": "a/b", "recorded": "2026-01-01", "license": "MIT"}\n')
    own = RepositorySettings(snapshot=str(path)).open(tools)
    (found,) = ask_all(["github.com/a/b"], own)
    assert found.text == "(recorded 2026-01-01): license MIT"
    assert own.summarize("mouseland/cellpose").startswith("(catalogue): ")
