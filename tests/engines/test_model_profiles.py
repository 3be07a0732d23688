"""The one table of what models were trained to write."""

from pathlib import Path

import pytest

from viewbox.core.parsing import reply
from viewbox.engines import model_profiles
from viewbox.engines.model_profiles import MODELS, find_model_type, get_model_defaults
from viewbox.envs.digits import Digits

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", MODELS)
def test_every_entry_says_where_it_is_known_from(kind):
    model = get_model_defaults(kind)
    source = (
        get_model_defaults(model.source.removeprefix("as ")).source if model.source.startswith("as ") else model.source
    )
    stated = {"coordinates": model.coordinates, "thinking": model.thinking, "format": model.reply_format}
    for word, value in stated.items():
        assert value is None or f"{word}:" in source or "the rest: chat template" in source, word
    assert model.to_settings() or source.startswith("default")


@pytest.mark.parametrize("kind", MODELS)
def test_every_entry_is_settings_that_an_environment_takes(kind):
    env = Digits(**get_model_defaults(kind).to_settings())
    for name, value in get_model_defaults(kind).to_settings().items():
        assert getattr(env, name) == value


def test_what_is_unknown_is_left_to_the_environment():
    assert get_model_defaults("some_new_model").to_settings() == {}
    assert "coordinates" not in get_model_defaults("gemma3").to_settings()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Qwen/Qwen2-VL-7B-Instruct", "qwen2_vl"),
        ("qwen2.5vl:7b", "qwen2_5_vl"),
        ("qwen2_5_vl-x", "qwen2_5_vl"),
        ("Qwen/Qwen3-VL-8B-Thinking", "qwen3_vl"),
        ("qwen/qwen3-vl-30b-a3b-instruct", "qwen3_vl_moe"),
        ("Qwen/Qwen3.5-9B", "qwen3_5"),
        ("Qwen/Qwen3.5-35B-A3B", "qwen3_5_moe"),
        ("google/gemma-3-27b-it", "gemma3"),
        ("gemma3:4b", "gemma3"),
        ("google/medgemma-4b-it", "gemma3"),
        ("google/gemma-3n-E4B-it", None),
        ("google/gemma-4-31B-it", "gemma4"),
        ("llava-hf/llava-v1.6-mistral-7b-hf", "llava_next"),
        ("llava-hf/llava-onevision-qwen2-7b-ov-hf", "llava_onevision"),
        ("HuggingFaceM4/Idefics3-8B-Llama3", "idefics3"),
        ("HuggingFaceTB/SmolVLM2-2.2B-Instruct", "smolvlm"),
        ("OpenGVLab/InternVL3_5-8B", "internvl"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral3"),
        ("mistralai/Pixtral-12B-2409", "pixtral"),
        ("zai-org/GLM-4.1V-9B-Thinking", "glm4v"),
        ("zai-org/GLM-4.5V", "glm4v_moe"),
        ("zai-org/GLM-4.6V-Flash", "glm46v"),
        ("moonshotai/Kimi-VL-A3B-Thinking-2506", "kimi_vl"),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", "mllama"),
        ("openbmb/MiniCPM-V-4_5", "minicpmv"),
        ("gpt-5", None),
        ("meta-llama/Llama-3.2-3B-Instruct", None),
        ("Qwen/Qwen3-8B", None),
    ],
)
def test_a_served_name_says_which_kind_of_model_it_is(name, kind):
    assert find_model_type(name) == kind


@pytest.mark.parametrize("kind", [kind for kind in MODELS if get_model_defaults(kind).thinking])
def test_thinking_in_a_models_tags_is_never_its_answer(kind):
    for opening, closing in get_model_defaults(kind).thinking:
        said = f'{opening}\nIs it {{"label": "one"}}?\n{closing}\n{{"label": "two"}}'
        found = reply.parse_reply(said, thinking=get_model_defaults(kind).thinking)
        assert isinstance(found, reply.Answer)
        assert found.value == {"label": "two"}


def test_where_coordinates_are_pixels_the_sides_that_are_not_resized_are_known():
    assert {kind for kind, model in MODELS.items() if model.coordinates == "pixel"} == {
        kind for kind, model in MODELS.items() if model.pixel_multiple
    }


def test_the_page_is_what_the_table_says():
    assert (ROOT / "docs" / "models.md").read_text().endswith(f"\n{model_profiles.build_markdown_table()}"), (
        "print it again: python -c "
        "'from viewbox.engines.model_profiles import *; print(build_markdown_table(), end=\"\")'"
    )
