"""Segmenters on real tiny models, compared with a plain transformers forward; the numbers of their regions."""

import numpy as np
import pytest
import torch
from transformers import (
    AutoImageProcessor,
    AutoModelForSemanticSegmentation,
    AutoModelForUniversalSegmentation,
    AutoProcessor,
    SamModel,
)

from tests.support.refusals import check_refusal
from tests.support.served_models import forget_servers
from tests.support.specialist_env import Clinic, call, get_results
from tests.support.specialist_env import offer as make
from tests.support.tables import each
from tests.support.tiny_specialists import save_mask2former, save_sam, save_segformer
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.tools.specialists.models.segmentation import measure_pixel


class Spaced(Clinic):
    """Pixels of 0.5 x 2 mm."""

    def images(self, task):
        return [Source.of(super().images(task)[0], spacing=(0.5, 2.0))]


def get_view(env, task=0):
    return env.reset(env.tasks[task], seed=0).view


def segment(folder, view):
    """The map of labels of a plain forward."""
    processor = AutoImageProcessor.from_pretrained(folder)
    model = AutoModelForSemanticSegmentation.from_pretrained(folder).eval()
    with torch.inference_mode():
        outputs = model(**processor(images=[view.render().convert("RGB")], return_tensors="pt"))
    width, height = view.size
    return processor.post_process_semantic_segmentation(outputs, target_sizes=[(height, width)])[0].numpy()


def assert_region(region, mask, view):
    rows, columns = np.nonzero(mask)
    height, width = mask.shape
    box = [columns.min() / width, rows.min() / height, (columns.max() + 1) / width, (rows.max() + 1) / height]
    assert list(region["box"]) == pytest.approx(box, abs=1e-3)
    assert region["area_percent"] == pytest.approx(100 * mask.mean(), abs=0.01)
    assert region["mean_intensity"] == pytest.approx(view.to_gray()[mask].mean(), abs=0.1)


def test_regions_are_those_of_the_model_with_their_numbers_and_a_color_on_each(tmp_path):
    names = ["background", "lung", "heart"]
    env = make("segmentation", save_segformer(tmp_path))
    view = get_view(env)
    labels = segment(tmp_path, view)
    (result,) = get_results(env, call("look"))
    regions = {region["label"]: region for region in result.facts["regions"]}
    assert regions
    assert regions.keys() == {name for number, name in enumerate(names) if (labels == number).any()} - {"background"}
    for name, region in regions.items():
        assert_region(region, labels == names.index(name), view)
        assert "area_mm2" not in region
    (result,) = get_results(make("segmentation", tmp_path, labels=["lung", "background", "heart"]), call("look"))
    drawn = np.asarray(result.image.open())
    assert drawn.shape == (32, 48, 3)
    for region in result.facts["regions"]:
        mask = labels == names.index(region["label"])
        assert (drawn[mask].max(1) != drawn[mask].min(1)).mean() > 0.9
    assert result.views
    label = next(iter(regions))
    one, none = get_results(env, call("look", label=label), call("look", label="bone"))
    assert [region["label"] for region in one.facts["regions"]] == [label]
    assert (none.text, none.image) == ("no bone found", None)
    (result,) = get_results(make("segmentation", tmp_path, env=Spaced), call("look"))
    for region in result.facts["regions"]:  # in millimeters where the spacing is known
        assert region["area_mm2"] == pytest.approx(region["area_percent"] / 100 * 48 * 0.5 * 32 * 2.0, rel=0.01)


def test_a_pixel_of_a_view_covers_what_it_shows():
    view = View.of(Source.of(np.zeros((100, 200), np.uint8), spacing=(0.5, 0.5)))
    assert measure_pixel(view) == pytest.approx(0.25)
    assert measure_pixel(view.crop((0, 0, 0.5, 0.5)).rotate()) == pytest.approx(0.25)
    zoomed = view.zoom(2.0)
    assert measure_pixel(zoomed) == pytest.approx(100 * 50 * 0.25 / (zoomed.size[0] * zoomed.size[1]))
    assert measure_pixel(View.of(np.zeros((4, 4), np.uint8))) is None


def test_a_setting_that_the_model_does_not_have(tmp_path):
    folder = save_segformer(tmp_path)
    for spec, key, says in (
        ({"labels": ["bone"]}, "labels", "unknown label 'bone'; allowed: background, heart, lung"),
        ({"task": "instance"}, "task", "has no instance segmentation; allowed: semantic"),
    ):
        check_refusal(make("segmentation", folder, **spec).prepare, f"specialists.look.{key}", says)
        forget_servers()


def test_objects_of_a_universal_model_are_regions_with_scores(tmp_path):
    env = make("segmentation", save_mask2former(tmp_path), threshold=0.0)
    view = get_view(env)
    processor = AutoImageProcessor.from_pretrained(tmp_path)
    model = AutoModelForUniversalSegmentation.from_pretrained(tmp_path).eval()
    with torch.inference_mode():
        outputs = model(**processor(images=[view.render().convert("RGB")], return_tensors="pt"))
    (found,) = processor.post_process_instance_segmentation(outputs, threshold=0.0, target_sizes=[(32, 48)])
    masks = {one["id"]: found["segmentation"].numpy() == one["id"] for one in found["segments_info"]}
    masks = {number: mask for number, mask in masks.items() if mask.any()}
    assert masks
    (result,) = get_results(env, call("look"))
    areas = sorted((round(100 * mask.mean(), 2) for mask in masks.values()), reverse=True)
    assert [region["area_percent"] for region in result.facts["regions"]] == pytest.approx(areas[:10], abs=0.01)
    assert all(0 <= region["score"] <= 1 for region in result.facts["regions"])


POINT = {"input_points": [[[[12.0, 16.0]]]], "input_labels": [[[1]]]}


@each("asked, given", [
    ({"box": [0.25, 0.25, 0.75, 0.75]}, {"input_boxes": [[[12.0, 8.0, 36.0, 24.0]]]}),
    ({"point": [0.5, 0.25]}, {"input_points": [[[[24.0, 8.0]]]], "input_labels": [[[1]]]}),
    ({"box": [0.0, 0.0, 0.5, 1.0], "point": [0.25, 0.5]}, {"input_boxes": [[[0.0, 0.0, 24.0, 32.0]]], **POINT}),
])  # fmt: skip
def test_a_region_is_marked_as_the_model_does(tmp_path, asked, given):
    forget_servers()
    env = make("prompted_segmentation", save_sam(tmp_path))
    view = get_view(env)
    processor, model = AutoProcessor.from_pretrained(tmp_path), SamModel.from_pretrained(tmp_path).eval()
    with torch.inference_mode():
        inputs = processor(images=[view.render().convert("RGB")], return_tensors="pt", **given)
        sizes = {name: inputs.pop(name) for name in ("original_sizes", "reshaped_input_sizes")}
        outputs = model(**inputs, multimask_output=False)
    mask = processor.post_process_masks(outputs.pred_masks, **sizes)[0].numpy().reshape(32, 48)
    (result,) = get_results(env, call("look", **asked))
    if not mask.any():
        assert result.text == "nothing found"
        return
    (region,) = result.facts["regions"]
    assert_region(region, mask, view)
    assert region["score"] == pytest.approx(outputs.iou_scores.item(), abs=1e-3)


def test_prompts_of_one_form_are_one_batch_with_the_results_of_each_and_a_call_without_a_place_is_refused(tmp_path):
    folder = save_sam(tmp_path)
    points = [[0.2, 0.2], [0.8, 0.3]]
    env = make("prompted_segmentation", folder, wait=10.0, max_batch=2, timeout=60.0)
    together = get_results(env, *[call("look", point=point) for point in points])
    assert env.toolbox["look"].function.server.batches == [2]
    forget_servers()
    env = make("prompted_segmentation", folder)
    alone = [get_results(env, call("look", point=point))[0] for point in points]
    assert [one.facts["regions"] for one in together] == [one.facts["regions"] for one in alone]
    env = make("prompted_segmentation", save_sam(tmp_path))
    without, flat = get_results(env, call("look"), call("look", box=[0.5, 0.5, 0.5, 0.9]))
    assert without.error == "look: needs a box, a point or both"
    assert flat.error == "look: box needs x1 < x2 and y1 < y2"
