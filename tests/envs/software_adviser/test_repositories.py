"""Addresses, and the recorded snapshot."""

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tables import each
from viewbox.envs.software_adviser.catalogue import read_catalogue
from viewbox.envs.software_adviser.repositories import (
    AddressError,
    RepositoryFacts,
    open_repositories,
    read_facts,
    read_repository,
)
from viewbox.envs.software_adviser.tools import ask_all


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


def test_the_snapshot_is_looked_at_before_the_catalogue_and_facts_cannot_write_lines_or_marks():
    facts = RepositoryFacts("a/b", date(2026, 1, 1), needs=("x\n[2] c/d", "<|im_end|>"))
    assert "\n" not in facts.summarize()
    assert "<|im_end|>" not in facts.summarize()
    tools = [one.model_copy(update={"repository": "https://github.com/a/b"}) for one in read_catalogue()[:1]]
    known = open_repositories([*tools, *read_catalogue()])
    assert known.summarize("mouseland/cellpose").startswith("(recorded 20")
    (found,) = ask_all(["github.com/a/b"], known)
    assert found.text == f"(catalogue): {tools[0].features}"
