"""`docs/configuration.md` says what the code checks, and leaves nothing out."""

import re
import runpy
from dataclasses import fields
from pathlib import Path

import pytest

from tests.support.tables import each
from viewbox.configs.schema import Config
from viewbox.configs.validation import describe_type, get_section_model
from viewbox.core.settings import model_of
from viewbox.envs import load_class
from viewbox.registry import ENVIRONMENTS
from viewbox.training.trainer_args import CHOICES, OWNED, REFUSED, get_defaults

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "config_page.py"))
build_page, get_default = SCRIPT["build_page"], SCRIPT["_get_default"]


def sections(model=Config, path=""):
    """(path, model) of a config's sections at any depth."""
    for name, field in model.model_fields.items():
        inner = get_section_model(field.annotation)
        if inner is not None:
            yield f"{path}{name}", inner
            yield from sections(inner, f"{path}{name}.")


def test_the_page_is_what_the_code_prints_without_an_empty_cell_or_meaning():
    assert (ROOT / "docs" / "configuration.md").read_text() == build_page(), (
        "print it again: python docs/config_page.py > docs/configuration.md"
    )
    assert "| |" not in build_page()
    assert not re.search(r"^- `\w+` \(.*\): (None)?$", build_page(), re.M)


def test_every_key_and_every_setting_of_every_environment_is_listed_with_its_meaning():
    page = build_page()
    for path, model in sections():
        part = page.split(f" `{path}`\n")[1].split("\n#")[0]
        for name, field in model.model_fields.items():
            assert field.description
            assert f"- `{name}` (" in part
            assert field.description in part
    shared = page.split("### Shared settings")[1].split("\n#")[0]
    for name in ENVIRONMENTS:
        part = page.split(f"### `env.name: {name}`")[1].split("\n#")[0]
        for setting, field in model_of(load_class(name)).model_fields.items():
            rows = [line for line in (part + shared).splitlines() if line.startswith(f"- `{setting}` (")]
            assert any(field.description in row for row in rows)
            default = get_default(field)
            assert any(default in row for row in rows) or f"`{setting}`: {default}" in part


@pytest.mark.slow
def test_what_is_given_to_the_trainers_are_arguments_they_have():
    from trl import GRPOConfig

    names = {field.name for field in fields(GRPOConfig)}
    assert get_defaults(gpu=True).keys() <= names
    assert OWNED.keys() <= names
    assert REFUSED.keys() <= names
    assert CHOICES.keys() <= names


@each("annotation, words", [
    (int | None, "a whole number or null"), (tuple[float, float, float, float], "a list of 4 numbers"),
    (tuple[str, ...], "a list of text"), (dict[str, float], "a mapping whose values are numbers"),
    (str | list[str], "text or a list of text"), (bool, "true or false"),
])  # fmt: skip
def test_types_are_told_in_words(annotation, words):
    assert describe_type(annotation) == words
