"""Requests: every one makes sense by the catalogue's facts, the splits share nothing, and a user tells when asked."""

import functools
import itertools
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.support.tables import each
from viewbox.envs.consultation import find_facts
from viewbox.envs.software_adviser import phrases as said
from viewbox.envs.software_adviser.catalogue import DIMENSIONS, FORMATS, MODALITIES, OTHER_TASKS, TASKS, read_catalogue
from viewbox.envs.software_adviser.generator import RequestGenerator, split_of
from viewbox.envs.software_adviser.previews import SIZE
from viewbox.envs.software_adviser.reasons import describe_tool, rate_why
from viewbox.envs.software_adviser.request import READY, REASONS, SUITABLE, UNKNOWN, Request, grade
from viewbox.envs.software_adviser.scenes import DRAWINGS, SCENES, draw_preview
from viewbox.envs.software_adviser.structures import ANY, read_terms
from viewbox.envs.software_adviser.wishes import read_wishes
from viewbox.errors import ConfigError

CATALOGUE = read_catalogue()
SPLITS = ("train", "test")
FOREIGN = (said.FOREIGN_TASKS, said.FOREIGN_MODALITIES)
GENERATORS = {split: RequestGenerator(CATALOGUE, split) for split in SPLITS}
ASKED_FOR = {
    "task": "What do you want to do with the images?",
    "dimensions": "Is it a single slice, a stack or a time series?",
    "format": "In which file format is the data?",
    "structure": "Which specific organ would you like to segment?",
}


@functools.cache  # not when tests are collected: it takes seconds
def make_requests(split):
    return [GENERATORS[split].make(seed) for seed in range(140)]


def make_all():
    return [(split, request) for split in SPLITS for request in make_requests(split)]


def find_suitable(request, split):
    return {name for name, points in GENERATORS[split].rate(request).items() if points >= SUITABLE}


@pytest.mark.slow
def test_a_request_with_an_answer_has_suitable_software_of_its_split_alone_and_one_without_has_none():
    right = {split: set() for split in SPLITS}
    for split, request in make_all():
        suitable = find_suitable(request, split)
        assert bool(suitable) == (request.status != "unanswerable"), request
        assert all(split_of(name) == split for name in suitable)
        assert (request.reason is not None) == (request.status == "unanswerable")
        right[split] |= suitable
    assert len(right["train"]) > 40
    assert len(right["test"]) > 25
    assert not right["train"] & right["test"]


def test_every_status_reason_level_constraint_and_hidden_kind_comes():
    for split in SPLITS:
        requests = make_requests(split)
        assert Counter(request.status for request in requests).most_common(1)[0][0] == "answerable"
        assert {request.reason for request in requests} == {None, *REASONS}
        assert {request.level for request in requests} == {"layman", "expert"}
        assert {kind for request in requests for kind in request.hidden} == set(said.HIDDEN_KINDS)
        assert {one for request in requests for one in request.constraints} == set(said.CONSTRAINTS)
        assert any(request.exclude and request.status == "answerable" for request in requests)


def test_each_reason_is_the_first_thing_that_no_software_has():
    for split, request in make_all():
        if request.reason in (None, "invalid_files"):
            continue
        able = [one for one in CATALOGUE if request.task in one.tasks]
        seeing = [one for one in able if request.modality in one.modalities or ANY in one.modalities]
        fitting = [one for one in seeing if request.dimensions in one.dimensions]
        expected = {"no_task_match": able, "no_modality_match": seeing, "no_dimension_match": fitting}
        first = next((reason for reason, left in expected.items() if not left), "no_suitable_tool")
        assert request.reason == first, (split, request)


def test_a_file_that_is_no_image_would_otherwise_have_an_answer():
    broken = [request for _, request in make_all() if request.reason == "invalid_files"]
    assert broken
    for request in broken:
        assert request.format == ""
        assert request.metadata["format"] in (*said.BROKEN_FILES["train"], *said.BROKEN_FILES["test"])
        able = [grade(one, replace(request, format=name)) for one in CATALOGUE for name in one.formats]
        assert max(able) >= SUITABLE


@pytest.mark.slow
def test_no_software_is_right_whatever_the_hidden_fact_is_and_the_fact_makes_it_clear():
    ambiguous = [(split, request) for split, request in make_all() if request.status == "ambiguous"]
    assert {kind for _, request in ambiguous[::3] for kind in request.hidden} == set(said.HIDDEN_KINDS)
    for split, request in ambiguous[::3]:
        [kind] = request.hidden
        values = {"task": TASKS, "dimensions": DIMENSIONS, "format": FORMATS, "structure": read_terms("structures")}
        rated = [GENERATORS[split].rate(replace(request, **{kind: value}, withheld=())) for value in values[kind]]
        if kind == "structure":  # a general tool does for any; the best is another for some
            rated = [{name: grade for name, grade in one.items() if grade == max(one.values())} for one in rated]
        suitable = [{name for name, points in one.items() if points >= SUITABLE} for one in rated]
        assert not set.intersection(*filter(None, suitable))
        assert find_suitable(request, split)


def test_what_is_hidden_stands_neither_in_the_words_nor_in_the_metadata():
    for _, request in make_all():
        for kind in request.hidden:
            known = f"{request.words} {' '.join(request.metadata.values())}"
            assert not re.search(rf"(?<!\w){re.escape(getattr(request, kind))}(?!\w)", known), request
            assert request.metadata.get(kind, UNKNOWN) == UNKNOWN
            if kind == "task":
                phrases = said.TASKS[request.task]
                assert not any(one in request.words for split in SPLITS for one in phrases[split])


def test_a_user_tells_the_hidden_fact_to_the_right_question_only():
    for _, request in make_all():
        facts = request.write_facts()
        for kind, question in ASKED_FOR.items():
            answer = find_facts(facts, question)
            assert request.hidden.get(kind, "") in answer
            if kind not in request.hidden and "task" not in request.hidden:  # a task may speak of files, too
                assert not any(hidden in answer for hidden in request.hidden.values())
        assert not any(hidden in find_facts(facts, "Tell me everything.") for hidden in request.hidden.values())


def make_request(**changes):
    facts = {"task": "segmentation", "modality": "fluorescence", "dimensions": "2D", "format": "TIFF"}
    return Request("", "expert", **{**facts, **changes})


CELLPOSE = next(one for one in CATALOGUE if one.name == "Cellpose")


@each(
    ("changes", "points"),
    [
        ({}, 100),
        ({"format": "CZI"}, 85),
        ({"format": "DICOM"}, 70),
        ({"format": ""}, 70),
        ({"task": "stitching"}, 60),
        ({"modality": "CT"}, 74),
        ({"dimensions": "3D+t"}, 74),
        ({"constraints": ("no GPU",)}, 100),
        ({"constraints": ("permissive license", "demo")}, 100),
        ({"exclude": ("cellpose",)}, 0),
        ({"task": "x", "modality": "x", "dimensions": "x", "format": "x"}, 0),
    ],
)
def test_a_grade_is_task_40_format_30_features_30(changes, points):
    assert grade(CELLPOSE, make_request(**changes)) == points


def test_a_tool_that_is_called_as_its_task_is_does_not_lose_the_task_in_a_reason():
    tool = next(one for one in CATALOGUE if one.name == "stitching")
    wanted = {"task": "stitching", "modality": "photo", "format": "JPEG", "structure": ""}
    assert (
        rate_why(
            "It is made for stitching in photo images and reads JPEG files.", describe_tool(tool, "stitching"), wanted
        )
        == 1.0
    )


SPM = next(one for one in CATALOGUE if one.name == "SPM")  # registers any brain, marks tissues


@each(
    ("task", "structure", "points", "why"),
    [
        ("registration", "brain", 100, 1.0),
        ("registration", "hippocampus", 92, 1.0),
        ("segmentation", "cortex", 100, 1.0),
        ("segmentation", "brain", 72, 0.0),
        ("segmentation", "hippocampus", 64, 0.0),
        ("measurement", "brain", 100, 1.0),
    ],
)
def test_a_tool_is_graded_and_a_reason_judged_by_its_structures_for_the_task(task, structure, points, why):
    request = make_request(task=task, modality="MR", dimensions="3D", format="NIfTI", structure=structure)
    assert grade(SPM, request) == points
    wanted = {"task": task, "modality": "MR", "format": "NIfTI", "structure": structure}
    reason = f"It is made for {task} of the {structure} in MR images and reads NIfTI files."
    assert rate_why(reason, describe_tool(SPM, task), wanted) == why


def test_no_grade_without_task_modality_dimensions_or_constraints_reaches_suitable():
    assert all(grade(CELLPOSE, make_request(**{name: "x"})) < SUITABLE for name in ("task", "modality", "dimensions"))
    changes = {"no GPU": {"gpu": "yes"}, "demo": {"demo": None}, "permissive license": {"license": "GPL-3.0"},
               "free license": {"license": "CC-BY-NC-4.0"}, READY: {"structures": {OTHER_TASKS: ("any",)}}}  # fmt: skip
    unknown = {"no GPU": {"gpu": "unknown"}, "permissive license": {"license": None}, "free license": {"license": None}}
    for constraint, facts in (*changes.items(), *unknown.items()):
        asked = make_request(constraints=(constraint,), structure="cell")
        assert grade(CELLPOSE.model_copy(update=facts), asked) < SUITABLE
        assert grade(CELLPOSE, asked) >= SUITABLE
    assert grade(CELLPOSE.model_copy(update={"license": "GPL-3.0"}), make_request(constraints=("free license",))) == 100


@each("license", ["MIT AND GPL-3.0-only", "BSD-4-Clause", "Apache-2.0 WITH LLVM-exception", "MIT-Commons-Clause"])
def test_a_license_is_permissive_by_its_whole_id(license):
    asked = make_request(constraints=("permissive license",))
    assert grade(CELLPOSE.model_copy(update={"license": license}), asked) < SUITABLE
    assert grade(CELLPOSE.model_copy(update={"license": f"{license} OR MIT"}), asked) >= SUITABLE


def list_phrases(split):
    tables = (said.TASKS, said.MODALITIES)
    phrases = [phrase for table in tables for row in table.values() for phrase in row[split]]
    phrases += [phrase for table in FOREIGN for pair in table[split] for phrase in pair]
    frames = (said.ASKED, said.VAGUE, said.UNSEEN, said.UNSEEN_VAGUE, said.FILED, said.ABOUT, *said.FOLLOW_UPS.values())
    phrases += [one for table in frames for level in table.values() for one in level[split]]
    phrases += [one for levels in said.CONSTRAINT_WORDS.values() for level in levels.values() for one in level[split]]
    phrases += [one for level in said.EXCLUSION_WORDS.values() for one in level[split]]
    return [*phrases, *said.BROKEN_FILES[split]]


def test_every_word_has_phrases_and_a_drawing_and_the_splits_share_no_phrase_and_no_foreign_term_is_a_word():
    assert set(said.TASKS) == set(TASKS)
    assert set(said.MODALITIES) == set(DRAWINGS) == set(MODALITIES) - {ANY}
    train, test = list_phrases("train"), list_phrases("test")
    assert len(set(train)) == len(train)
    assert not set(train) & set(test)
    foreign = [term for split in SPLITS for table in FOREIGN for _, term in table[split]]
    assert not {*foreign} & {*TASKS, *MODALITIES}


def test_words_say_the_facts_the_constraints_and_the_exclusions():
    for split, request in make_all():
        assert "{" not in request.words
        if request.level == "expert" and "task" not in request.hidden:
            assert request.task in request.words
        if request.level == "expert" and not request.pictured and not request.filed:
            assert (request.variant or request.modality) in request.words
            assert not request.structure or "structure" in request.hidden or request.structure in request.words
        assert all(name in request.words for name in request.exclude)
        sentences = [said.CONSTRAINT_WORDS[one][request.level][split] for one in request.constraints]
        assert all(any(one in request.words for one in some) for some in sentences)


def test_most_requests_with_an_answer_are_told_by_the_picture_alone_and_their_words_and_files_say_none_of_it():
    for split in SPLITS:
        assert sum(bool(request.pictured) for request in make_requests(split)) >= len(make_requests(split)) / 2
        for request in make_requests(split):
            if len(request.pictured) < 2:
                continue
            known = {word for kind, words in read_wishes(request.words) if kind != "tasks" for word in words}
            assert not known & {request.modality, request.variant, request.structure} - {"cell"}, request
            assert not {"voxel size", "modality"} & request.metadata.keys()


def test_every_kind_of_picture_is_drawn_small_the_same_every_time_and_as_a_crossed_box_if_it_cannot_be_read():
    broken = draw_preview(make_request(reason="invalid_files")).pixels
    kinds = [(scene.modality, scene.structure, scene.variant) for scene in SCENES]
    for modality, structure, variant in (*kinds, *((name, "", "") for name in (*DRAWINGS, "weather radar"))):
        request = make_request(modality=modality, structure=structure, variant=variant, seed=5)
        preview = draw_preview(request)
        assert preview.pixels.shape[:2] == (SIZE, SIZE)
        assert preview.pixels.dtype == np.uint8
        assert preview.pixels.std() > 10
        assert (draw_preview(replace(request, words="?")).pixels == preview.pixels).all()
        assert (draw_preview(replace(request, seed=6)).pixels != preview.pixels).any()
        assert (draw_preview(make_request(modality=modality, reason="invalid_files")).pixels == broken).all()


def test_a_time_series_is_a_contact_sheet_unless_its_dimensions_are_hidden():
    series = make_request(dimensions="2D+t")
    sheet = draw_preview(series).pixels
    height, width = sheet.shape[0] // 2, sheet.shape[1] // 3
    frames = [sheet[y * height : (y + 1) * height, x * width : (x + 1) * width] for y in range(2) for x in range(3)]
    assert all((one != other).any() for one, other in itertools.combinations(frames, 2))
    hidden = draw_preview(replace(series, hidden={"dimensions": "…"})).pixels
    assert (hidden == draw_preview(make_request()).pixels).all()
    drawn = {draw_preview(make_request(modality=kind, structure=name, variant=variant)).pixels.tobytes()
             for kind, name, variant in ((one.modality, one.structure, one.variant) for one in SCENES)}  # fmt: skip
    assert len(drawn) == len(SCENES)


@pytest.mark.slow
def test_a_request_is_the_same_every_time_depends_on_the_split_and_on_what_is_chosen():
    again = RequestGenerator(read_catalogue(), "train")
    assert [again.make(seed) for seed in range(20)] == make_requests("train")[:20]
    assert make_requests("train")[:20] != make_requests("test")[:20]

    without = RequestGenerator(CATALOGUE, "test", {"unanswerable": 1.0}, reasons=("invalid_files",))
    assert {without.make(seed).reason for seed in range(10)} == {"invalid_files"}


@each(
    ("catalogue", "settings", "problem"),
    [
        ((), {}, "no software of split train"),
        (tuple(one for one in CATALOGUE if split_of(one.name) == "test"), {}, "no software of split train"),
        ((CELLPOSE,), {"shares": {"ambiguous": 1.0}, "split": split_of("Cellpose")}, "allows no ambiguous request"),
    ],
)
def test_a_catalogue_that_allows_no_such_request_is_refused_in_words(catalogue, settings, problem):
    with pytest.raises(ConfigError, match=problem):
        RequestGenerator(catalogue, **{"split": "train", **settings}).make(0)
