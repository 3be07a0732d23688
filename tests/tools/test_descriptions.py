"""A model can only know of an argument what the tool's schema says: its meaning, its unit and its default."""

import pytest

from viewbox.envs import make
from viewbox.tools import TOOLS

OFFERED = TOOLS | {
    f"{env.name}.{name}": env.toolbox[name]
    for env in map(make, ("consultation", "literature_vqa", "software_adviser"))
    for name in env.tools
}


@pytest.mark.parametrize("name", sorted(OFFERED))
def test_every_argument_is_described_with_its_default(name):
    tool = OFFERED[name]
    for argument, spec in tool.build_schema("per_mille")["function"]["parameters"]["properties"].items():
        text = spec.get("description", "")
        assert len(text.split()) > 1, argument
        if argument not in tool.required and not name.endswith("window_level"):  # which takes a preset, or both others
            assert "default" in text or "empty" in text, text


def test_the_way_a_rotation_goes_is_said():
    text = TOOLS["rotate"].build_schema()["function"]["parameters"]["properties"]["clockwise"]["description"]
    assert text == "true turns it to the right, false to the left; default true"


def test_the_defaults_of_an_authors_tool_are_said_without_a_word_of_the_author():
    from viewbox.tools import Tool

    def count(view, times: int = 3, how: str = "fast", exact: bool = False, share: float = 0.50) -> str:
        """Count."""

    properties = Tool.from_function(count).build_schema()["function"]["parameters"]["properties"]
    assert [one["description"] for one in properties.values()] == [
        "default 3", 'default "fast"', "default false", "default 0.5",
    ]  # fmt: skip
