"""docs/architectures.md has each type of transformers, and says what its script finds."""

import re
import runpy
from pathlib import Path

import pytest
import torch

from viewbox.engines.hf.architectures import Architecture
from viewbox.training.grpo.logprobs import build_head

PAGE = Path(__file__).parents[3] / "docs" / "architectures.md"
QUICK = (  # played, with further tensors of its tower, refused for how it reads, refused for what its config lacks
    *("qwen2_vl", "ovis2", "mllama", "blip"),
)


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(PAGE.with_name("architectures_page.py")))


def read_rows():
    """The (result, processor, reason) of each type: types of one outcome share a row."""
    table = PAGE.read_text(encoding="utf-8").partition("|---|---|---|---|---|\n")[2]
    rows = {}
    for line in table.splitlines():
        result, _, processor, reason, kinds = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        rows |= dict.fromkeys(re.findall(r"`([^`]+)`", kinds), (result, processor, reason))
    return rows


def forget_figures(outcome):
    return [re.sub(r"by \d\.\d+", "", cell) for cell in outcome]


def test_each_type_is_in_a_row_and_most_play(script):
    assert sorted(read_rows()) == [one.model_type for one in script["list_types"]()]
    assert sum(result.startswith("exact") for result, _, _ in read_rows().values()) >= 60


@pytest.mark.parametrize("kind", QUICK)
def test_a_row_says_what_the_script_finds(kind, script):
    (config_class,) = (one for one in script["list_types"]() if one.model_type == kind)
    outcome = script["try_type"](config_class).get_outcome()
    assert forget_figures(read_rows()[kind]) == forget_figures(outcome), "python docs/architectures_page.py"


@pytest.mark.parametrize("kind", ["llava_next", "chameleon"])  # ids by position; reads its backbone
@torch.no_grad()
def test_the_loss_has_the_logits_of_the_models_own_forward(kind, script):
    (config_class,) = (one for one in script["list_types"]() if one.model_type == kind)
    config = script["build_config"](config_class, script["get_base_tokenizer"](), 5)
    assert Architecture(config).has_backbone
    model, ids = script["build_model"](config), torch.arange(20, 26)[None]
    logits = model(input_ids=ids, use_cache=False).logits[0]
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[0]
    torch.testing.assert_close(build_head(model)(hidden), logits, msg=kind)


@pytest.mark.nightly
def test_all_rows_say_what_the_script_finds_and_the_loss_has_the_logits_of_all_on_the_engines_cache(script):
    for kind, (result, _, _) in read_rows().items():
        test_a_row_says_what_the_script_finds(kind, script)
        if result in ("exact", "exact, with states"):
            test_the_loss_has_the_logits_of_the_models_own_forward(kind, script)
