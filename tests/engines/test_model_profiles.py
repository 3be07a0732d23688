"""The one table of what models were trained to write."""

import runpy
from pathlib import Path

import pytest

from viewbox.core.parsing import reply
from viewbox.engines.model_profiles import MODELS, find_model_defaults, get_model_defaults
from viewbox.envs.digits import Digits

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
NAMES = {
    "Qwen/Qwen2-VL-7B-Instruct": "qwen2_vl",
    "qwen2.5vl:7b": "qwen2_5_vl", "qwen2_5_vl-x": "qwen2_5_vl", "Qwen/Qwen3-VL-8B-Thinking": "qwen3_vl",
    "qwen/qwen3-vl-30b-a3b-instruct": "qwen3_vl_moe", "Qwen/Qwen3.5-35B-A3B": "qwen3_5_moe", "gemma3:4b": "gemma3",
    "google/medgemma-4b-it": "gemma3", "google/gemma-3n-E4B-it": None, "google/gemma-4-31B-it": "gemma4",
    "llava-hf/llava-v1.6-mistral-7b-hf": None, "llava-hf/llava-onevision-qwen2-7b-ov-hf": None,
    "OpenGVLab/InternVL3_5-8B": "internvl", "mistralai/Mistral-Small-3.2-24B-Instruct-2506": "mistral3",
    "zai-org/GLM-4.1V-9B-Thinking": "glm4v", "zai-org/GLM-4.5V": "glm4v_moe", "zai-org/GLM-4.6V-Flash": "glm46v",
    "moonshotai/Kimi-VL-A3B-Thinking-2506": "kimi_vl", "meta-llama/Llama-3.2-11B-Vision-Instruct": "mllama",
    "meta-llama/Llama-3.2-3B-Instruct": None, "Qwen/Qwen3-8B": None, "gpt-5": None,
}  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.kinds[0])
def test_every_entry_is_settings_that_an_environment_takes_and_says_where_each_is_known_from(model):
    env = Digits(**model.to_settings())
    for name, value in model.to_settings().items():
        assert getattr(env, name) == value
    stated = {"coordinates": model.coordinates, "thinking": model.thinking, "format": model.reply_format}
    for word, value in stated.items():
        assert value is None or f"{word}:" in model.source or "the rest: chat template" in model.source, word
    assert (model.coordinates == "pixel") == bool(model.pixel_multiple)
    for opening, closing in model.thinking or ():  # a thought is never the answer
        said = f'{opening}\nIs it {{"label": "one"}}?\n{closing}\n{{"label": "two"}}'
        found = reply.parse_reply(said, thinking=model.thinking)
        assert isinstance(found, reply.ParsedAnswer)
        assert found.value == {"label": "two"}


def test_a_served_name_says_which_kind_of_model_it_is_and_the_page_is_what_the_table_says():
    for name, kind in NAMES.items():
        assert find_model_defaults(name) == get_model_defaults(kind or "unknown"), name
    build_markdown_table = runpy.run_path(str(PAGE.with_name("models_page.py")))["build_markdown_table"]
    assert PAGE.read_text().endswith(f"\n{build_markdown_table()}"), "print its table again: python docs/models_page.py"
