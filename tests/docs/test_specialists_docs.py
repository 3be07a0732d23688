"""`docs/specialists.md`: every YAML offers tools that answer, every kind is on the page, and the program runs."""

import re
from pathlib import Path

import pytest
import yaml

from tests.support.clean_python import run_python
from tests.support.model_fixtures import corpus, kits, qwen3  # noqa: F401
from tests.support.served_models import forget_servers
from tests.support.specialist_env import Clinic, call, get_results
from tests.support.tiny_specialists import save_owlvit, save_sam, save_segformer, save_vit, save_yolos
from viewbox import registry
from viewbox.errors import ConfigError

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "specialists.md").read_text()
BLOCKS = [yaml.safe_load(code)["specialists"] for code in re.findall(r"```yaml\n(.*?)```", PAGE, re.S)]
OFFERED = [(name, spec) for block in BLOCKS for name, spec in block.items()]
ELSEWHERE = ("http", "literature", "mcp")  # need a server, or look at no picture: their own tests run their YAML
OWN = """
from viewbox import Picture

def brightness(image: Picture) -> dict:
    "The mean gray value."
    return {"mean": float(image.to_gray().mean())}
"""
ARGUMENTS = {
    "grounding": {"phrase": "opacity"},
    "prompted_segmentation": {"point": [0.5, 0.5]},
    "text": {"question": "which digit"},
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models(tmp_path_factory, qwen3):  # noqa: F811
    folder = tmp_path_factory.mktemp("work")
    models = folder / "models"
    save_vit(models / "chest_classifier")
    save_yolos(models / "detector")
    save_owlvit(models / "grounder")
    save_segformer(models / "segmenter")
    save_sam(models / "sam")
    model = qwen3.model()
    model.lm_head.bias = None  # no such model has one
    model.save_pretrained(models / "vlm")
    qwen3.processor.save_pretrained(models / "vlm")
    (folder / "my_tools.py").write_text(OWN)
    return folder


def test_every_kind_has_a_block():
    assert {spec["kind"] for _, spec in OFFERED} >= registry.SPECIALISTS.keys() - set(ELSEWHERE)
    assert all(f"`{kind}`" in PAGE for kind in ELSEWHERE)


@pytest.mark.parametrize(
    ("name", "spec"), [pytest.param(name, spec, id=name) for name, spec in OFFERED if spec["kind"] not in ELSEWHERE]
)
def test_every_block_offers_a_tool_that_answers(models, monkeypatch, name, spec):
    monkeypatch.chdir(models)
    forget_servers()
    env = Clinic(specialists={name: {**spec, **({} if spec["kind"] == "function" else {"device": "cpu"})}})
    env.prepare()
    arguments = {} if spec.get("task") == "report" else ARGUMENTS.get(spec["kind"], {})
    (result,) = get_results(env, call(name, **arguments))
    assert result.error is None
    assert result.text
    forget_servers()


def test_the_message_on_the_page_is_the_one_of_the_code(models, monkeypatch):
    monkeypatch.chdir(models)
    spec = {"kind": "classification", "model": "./models/chest_clasifier"}
    with pytest.raises(ConfigError) as caught:
        Clinic(specialists={"classify_chest": spec}).prepare()
    (shown,) = re.findall(r"^    (specialists\..* \(did you mean) ", PAGE, re.M)
    assert str(caught.value).startswith(shown)


def test_the_program_on_the_page_prints_what_the_page_says(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE, re.S)
    (tmp_path / "own_kind.py").write_text(code)
    assert run_python("own_kind.py", cwd=tmp_path) == printed
