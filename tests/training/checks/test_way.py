"""What a dry run says of a model of each family: which way it takes, and what a picture costs."""

import shutil

import pytest

from tests.support.families import list_names, save_family
from viewbox.configs.schema import parse
from viewbox.errors import ConfigError, ModelError
from viewbox.training.findings import check
from viewbox.training.plan import Plan

PLAIN, MASKED, PADDED = (
    "without a mask", "(full_attention, sliding_attention); learns from packed rows with a mask for each kind of layer",
    "padded rows",
)  # fmt: skip
KEPT = "the largest view, 64 x 64, costs 16 tokens; views keep their size, in multiples of 16"
TILES = "the largest view, 64 x 64, costs 20 tokens: 5 pictures of 32 x 32"
SQUARE = ": 1 picture of 32 x 32; smaller ones cost the same; env.max_pixels above 1024 is never reached"
LINES = {  # 64 x 64 pixels: 4 x 4 tokens of 16 x 16 pixels, or 2 x 2 tiles and a small copy of 4 tokens each
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "mistral3", "glm4v", "glm46v"), (PLAIN,
        KEPT)),
    "qwen3_5": (PADDED, KEPT), "gemma3": (MASKED, "the largest view, 64 x 64, costs 4 tokens" + SQUARE),
    "gemma4": (MASKED, "the largest view, 64 x 64, costs 64 tokens; smaller ones cost the same"),
    "gemma4_31b": (MASKED, "the largest view, 64 x 64, costs 64 tokens; smaller ones cost the same"),
    "smolvlm": (PLAIN, TILES + "; smaller ones cost the same"),
    "idefics3": (PLAIN, TILES + "; smaller ones cost the same"), "internvl": (PLAIN, TILES),
    "llava": (PLAIN, "the largest view, 64 x 64, costs 16 tokens" + SQUARE),
    # the whole in 4 x 4 tokens; its tiles in 8 x 8, each row of which ends in a token of its own
    "llava_next": (PLAIN, "the largest view, 64 x 64, costs 88 tokens: 5 pictures of 32 x 32"),
    "llava_onevision": (PLAIN, "the largest view, 64 x 64, costs 88 tokens: 5 pictures of 32 x 32"),
    "aya_vision": (MASKED, TILES),
    "lfm2_vl": (PADDED, "the largest view, 64 x 64, costs 20 tokens; smaller ones keep their size, in multiples of 16"),
}  # fmt: skip


def read(folder, name, max_pixels=None, **env):
    return parse(
        {
            "model": {"name": str(save_family(name, folder / name)), "dtype": "float32", "max_pixels": max_pixels},
            "env": {"name": "digits", "max_pixels": 64 * 64, **env},
            "rollout": {"max_completion_tokens": 400, "max_reply_tokens": 40},
            "train": {"per_device_train_batch_size": 8, "num_generations": 4, "use_cpu": True},
            "log": {"eval_tasks": 0, "dir": str(folder / "run")},
        }
    )


@pytest.mark.parametrize("name", list_names("qwen3_vl", "gemma3", "internvl", "lfm2_vl"))
def test_a_dry_run_says_which_way_a_model_takes_and_what_a_picture_costs(tmp_path, name):
    found = check(Plan(read(tmp_path, name))).lines
    way, pictures = LINES[name]
    assert way in found["model"]
    assert found["pictures"].startswith(pictures)


def test_max_pixels_of_the_model_that_change_nothing_are_named(tmp_path):
    config = read(tmp_path, "gemma3", max_pixels=32 * 32)
    assert "model.max_pixels = 1024 is never reached" in check(Plan(config)).lines["pictures"]


@pytest.mark.parametrize(("name", "fits"), [("qwen2_5_vl", True), ("gemma3", False), ("internvl", False)])
def test_pixels_are_no_coordinates_where_the_processor_changes_the_size_of_views(tmp_path, name, fits):
    config = read(tmp_path, name, coordinates="pixel")
    if fits:
        assert check(Plan(config)).lines["environment"]["coordinates"] == "pixel"
        return
    with pytest.raises(ConfigError, match=r"env\.coordinates = pixel: .*allowed: unit or per_mille"):
        check(Plan(config))


def test_a_package_that_a_processor_needs_is_named_with_its_command(tmp_path, monkeypatch):
    config = read(tmp_path, "smolvlm")
    monkeypatch.setattr("transformers.models.smolvlm.processing_smolvlm.num2words", None)
    with pytest.raises(ModelError, match="pip install num2words"):
        check(Plan(config))


PROCESSOR, TOKENIZER = ("chat_template.jinja", "processor_config.json"), ("tokenizer.json", "tokenizer_config.json")


@pytest.mark.parametrize(("name", "other", "taken", "complaint"), [
    ("gemma3", "mistral3", PROCESSOR + TOKENIZER, "PixtralProcessor writes none for a picture "),
    ("mistral3", "llava", TOKENIZER, "is another text to the tokenizer"),
])  # fmt: skip
def test_a_processor_or_tokenizer_of_another_model_is_named(tmp_path, name, other, taken, complaint):
    config = read(tmp_path, name)
    save_family(other, tmp_path / other)
    for file in taken:
        shutil.copy(tmp_path / other / file, tmp_path / name / file)
    with pytest.raises(ModelError, match=f"{complaint}.*those of another model"):
        check(Plan(config))
