"""`kind: detection` and `kind: grounding` on real tiny models, compared with a plain transformers forward."""

import pytest
import torch
from transformers import (
    AutoImageProcessor,
    AutoModelForObjectDetection,
    AutoModelForZeroShotObjectDetection,
    AutoProcessor,
)

from tests.support.served_models import forget_servers
from tests.support.specialist_env import call, get_picture, get_results
from tests.support.specialist_env import offer as make
from tests.support.tiny_specialists import LABELS, save_grounding_dino, save_owlvit, save_yolos
from viewbox.errors import ConfigError


def read(result):
    return [(one["label"], one["score"], list(one["box"])) for one in result.facts.get("boxes", ())]


def expect(found, labels, size=(48, 32)):
    """What a plain forward found, the highest score first, as fractions."""
    rows = []
    for label, score, box in zip(labels, found["scores"].tolist(), found["boxes"].tolist(), strict=True):
        ends = [min(1, max(0, end / side)) for end, side in zip(box, size * 2, strict=True)]
        rows.append((label, round(score, 3), ends))
    return sorted(rows, key=lambda row: -row[1])


def assert_same(given, expected):
    assert [score for _, score, _ in given] == pytest.approx([score for _, score, _ in expected], abs=2e-3)
    for label, _, box in given:
        assert any(label == other and box == pytest.approx(place, abs=6e-4) for other, _, place in expected)


def test_boxes_are_those_of_the_model_in_the_coordinates_of_the_environment_the_highest_score_first(tmp_path):
    env = make("detection", save_yolos(tmp_path), threshold=0.0)
    processor = AutoImageProcessor.from_pretrained(tmp_path)
    model = AutoModelForObjectDetection.from_pretrained(tmp_path)
    with torch.inference_mode():
        outputs = model.eval()(**processor(images=[get_picture(env)], return_tensors="pt"))
    (found,) = processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=[(32, 48)])
    expected = expect(found, [LABELS[i] for i in found["labels"].tolist()])
    (result,) = get_results(env, call("look"))
    assert len(expected) >= 5
    assert_same(read(result), expected)
    assert result.text.startswith(f"{len(expected)} boxes")
    env = make("detection", tmp_path, settings={"coordinates": "per_mille"}, threshold=0.0)
    (other,) = get_results(env, call("look"))
    for (_, _, unit), (_, _, mille) in zip(read(result), read(other), strict=True):
        assert mille == pytest.approx([1000 * end for end in unit], abs=1)
    env = make("detection", tmp_path, threshold=0.0, max_boxes=2)
    every, none = get_results(env, call("look"), call("look", at_least=1.0))
    assert len(read(every)) == 2
    assert "the 2 with the highest scores" in every.text
    assert none.text == "nothing found"


@pytest.mark.parametrize("save", [save_owlvit, save_grounding_dino])
def test_a_phrase_is_grounded_as_the_model_does(tmp_path, save):
    env = make("grounding", save(tmp_path), threshold=0.0, max_boxes=100)
    processor = AutoProcessor.from_pretrained(tmp_path)
    model = AutoModelForZeroShotObjectDetection.from_pretrained(tmp_path).eval()
    results = get_results(env, call("look", phrase="opacity left"), call("look", phrase="clear"))
    for phrase, result in zip(("opacity left", "clear"), results, strict=True):
        with torch.inference_mode():
            inputs = processor(text=[[phrase]], images=[get_picture(env)], return_tensors="pt")
            outputs = model(**inputs)
        (found,) = processor.post_process_grounded_object_detection(outputs, threshold=0.0, target_sizes=[(32, 48)])
        assert_same(read(result), expect(found, [phrase] * len(found["scores"])))
    assert results[0].facts != results[1].facts


def test_different_phrases_and_pictures_are_one_batch(tmp_path):
    spec = {"wait": 10.0, "max_batch": 2, "timeout": 60.0}
    env = make("grounding", save_owlvit(tmp_path), threshold=0.0, **spec)
    together = get_results(env, call("look", phrase="opacity"), call("look", phrase="clear"))
    assert env.toolbox["look"].function.server.batches == [2]
    forget_servers()
    alone = make("grounding", tmp_path, threshold=0.0)
    apart = [get_results(alone, call("look", phrase=phrase))[0] for phrase in ("opacity", "clear")]
    assert [result.facts for result in apart] == [result.facts for result in together]


def test_a_phrase_that_the_model_cannot_read_and_a_model_of_the_other_kind_are_refused(tmp_path):
    env = make("grounding", save_owlvit(tmp_path / "owlvit"))
    too_long = ("left " * 40, "look: The phrase takes 42 tokens; allowed: at")
    for phrase, says in (("  ", "look: phrase is empty; allowed: a few words"), too_long):
        (result,) = get_results(env, call("look", phrase=phrase))
        assert result.error.startswith(says)
    with pytest.raises(ConfigError, match=r"kind grounding: unknown model_type 'yolos'; allowed: .*owlvit"):
        make("grounding", save_yolos(tmp_path / "yolos")).prepare()
