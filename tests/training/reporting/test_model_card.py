"""The card of exported weights: the license is the base model's, and notices are about what was trained on."""

import json

import huggingface_hub
import pytest
import yaml
from huggingface_hub.errors import LocalEntryNotFoundError

from tests.support.tables import each
from viewbox.configs import schema
from viewbox.configs.sections import ModelSection
from viewbox.training.reporting.model_card import find_license, write_card

OTHER = {"license": "other", "license_name": "qwen-research", "license_link": "https://example.org/LICENSE"}


@pytest.fixture
def base(tmp_path):
    """A base model's folder with this text as its README.md (None: without)."""

    def make(readme, config=None):
        folder = tmp_path / f"base-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        if readme is not None:
            (folder / "README.md").write_text(readme)
        if config is not None:
            (folder / "config.json").write_text(json.dumps(config))
        return str(folder)

    return make


@pytest.fixture
def card(tmp_path):
    """(front matter, body) of the card of weights trained from a model in an environment."""

    def write(env="digits", **model):
        config = schema.parse({"model": model, "env": {"name": env}})
        write_card(tmp_path, config, {"held_out": {"after": {"reward": 0.5}}})
        header, body = (tmp_path / "README.md").read_text().split("---\n")[1:3]
        return yaml.safe_load(header), body

    return write


def front_matter(**entries):
    return f"---\n{yaml.safe_dump(entries)}---\n# A model\n"


MIT = {"license": "mit"}
CARDS = [  # a base model's card, its config, and what is known of the license
    (front_matter(**MIT, tags=["x"]), None, MIT), (front_matter(**OTHER, tags=["x"]), None, OTHER),
    ("# no header\n", MIT, MIT),
    *((readme, None, {}) for readme in (None, "", "---\nlicense: [a]\n---\n", "---\n{broken\n---\n",
        "---\nlicense: mit\n", "---\n- a\n---\n",)),
]  # fmt: skip


@each("readme, config, entries", CARDS)
def test_the_license_is_the_base_models_own_or_the_card_says_that_it_is_not_known(card, base, readme, config, entries):
    name = base(readme, config)
    header, body = card(name=name)
    assert {key: value for key, value in header.items() if key.startswith("license")} == entries
    assert (f"The license of the base model `{name}` is not known here." in body) == (not entries)
    assert ("is not known" in body) == (not entries)
    assert header["library_name"] == "transformers"


def test_no_license_is_invented_for_a_model_built_from_nothing(card):
    header, body = card(tiny={})
    assert not any(key.startswith("license") for key in header)
    assert "their license is yours to choose" in body
    assert "Optical Recognition" in body
    assert "Optical Recognition" not in card("package.module:Other", tiny={})[1]


def test_the_license_of_a_hub_model_is_read_from_its_card(card, base, monkeypatch):
    readme = base(front_matter(**OTHER)) + "/README.md"
    asked = []

    def unreachable(*args, **given):
        raise LocalEntryNotFoundError("no network")

    with monkeypatch.context() as patch:
        patch.setattr(huggingface_hub, "hf_hub_download", unreachable)
        assert find_license(ModelSection(name="Qwen/Qwen2.5-VL-3B-Instruct")) == {}
    monkeypatch.setattr(
        huggingface_hub, "hf_hub_download", lambda *args, **given: asked.append((*args, given)) or readme
    )
    header, _ = card(name="Qwen/Qwen2.5-VL-3B-Instruct", revision="main")
    assert asked == [("Qwen/Qwen2.5-VL-3B-Instruct", "README.md", {"revision": "main"})]
    assert header["license_name"] == "qwen-research"
    assert header["base_model"] == "Qwen/Qwen2.5-VL-3B-Instruct"
