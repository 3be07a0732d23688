"""The search of a catalogue: what it finds, in which order, and that nothing but catalogue and query counts."""

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.software import TOOLS, make_tool
from tests.support.tables import each
from viewbox.envs.software_adviser.catalogue import (
    DIMENSIONS,
    FORMATS,
    INTERFACES,
    MODALITIES,
    TASKS,
    read_catalogue,
)
from viewbox.envs.software_adviser.retrieval import Retriever
from viewbox.envs.software_adviser.wishes import has_fact, read_table, read_wishes


@pytest.fixture(scope="module")
def retriever():
    return Retriever(TOOLS)


@each(
    ("words", "first"),
    [
        ("segment nuclei in fluorescence microscopy", "Glow"),
        ("I want to outline the nuclei in pictures of glowing cells", "Glow"),
        ("remove the patient's name", "Nameless"),
        ("nameless", "Nameless"),
        ("noisy MRI, my computer has no graphics card", "Calm"),
        ("noise in magnetic resonance imaging, I want to try it online", "Calm"),
    ],
)
def test_experts_and_laymen_find_the_tool(retriever, words, first):
    assert retriever.search(words, top_k=3)[0] == first


def test_met_wishes_stand_before_words_and_words_decide_among_equals():
    wordy, fitting, equal = (
        make_tool("Wordy", modalities=("MR",), features="CT CT CT segmentation of CT, says this sentence of CT."),
        make_tool("Fitting", modalities=("CT",), features="Outlines organs."),
        make_tool("Equal", modalities=("CT",), features="Outlines the segmentation of CT."),
    )
    assert Retriever([wordy, fitting, equal]).search("segmentation CT", top_k=3) == ["Equal", "Fitting", "Wordy"]
    assert Retriever([fitting]).search("tax return", top_k=1, formats=["DICOM"]) == []  # no word of it is anywhere


def test_a_structure_is_met_by_what_a_tool_is_made_for_in_the_task_of_the_query_and_in_any_without_one():
    both, lists = ("segmentation", "registration"), {"segmentation": ["cortex"], "other tasks": ["brain"]}
    found = Retriever([make_tool("Tissue", both, structures=lists), make_tool("Brainy", both, structures=["brain"])])
    for words, first in (("segmentation of the brain", "Brainy"), ("segmentation of the cortex", "Tissue")):
        assert found.search(words, top_k=1) == [first]
    rated = [[found._meet("structures", [word], [task])[0] for task in (*both, "")] for word in ("brain", "cortex")]
    assert rated == [[0.3, 1.0, 1.0], [1.0, 0.1, 1.0]]


def test_formats_of_the_files_change_the_order_and_equal_tools_keep_theirs():
    twins = [make_tool("A", formats=("NIfTI",)), make_tool("B", formats=("DICOM",))]
    for formats, first in ([["NIfTI"], "A"], [["DICOM"], "B"], [[], "A"]):
        assert Retriever(twins).search("segmentation of CT", top_k=2, formats=formats)[0] == first
    assert Retriever(TOOLS[:1]).search("organs", top_k=5) == ["Cutter"]
    same = [make_tool(name) for name in ("b", "a", "c")]
    assert Retriever(same).search("segmentation", top_k=3) == ["b", "a", "c"]


WORDED = [json.loads(line) for line in Path(__file__).with_name("requests.jsonl").open()]  # words, format, right tools
OFF = [
    "pizza recipe", "best laptop for gaming", "stock market forecast", "weather tomorrow", "how do I bake bread",
    "train timetable", "write a love letter", "tax return", "music streaming", "guitar tuner", "chess engine",
    "spreadsheet formula", "email client", "audio processing speech to text", "video game emulator", "car insurance",
    "marathon training plan", "garden irrigation", "contract review", "python web framework", "SQL database backup",
    "password manager", "translate English to French", "VPN service",
]  # fmt: skip


def test_right_tools_of_requests_in_users_words_are_found_each_by_its_name_and_nothing_is_off_the_field():
    shipped = Retriever(read_catalogue())

    def recall(with_format):
        shares = []
        for words, format, right in WORDED:
            found = shipped.search(words, top_k=12, formats=[format] if with_format and format else [])
            shares.append(len({*right} & {*found}) / len(right))
        return sum(shares) / len(shares)

    assert recall(True) >= 0.95
    assert recall(False) >= 0.92
    for formats in ([], ["DICOM"], ["TIFF"]):
        assert all(tool.name in shipped.search(tool.name, top_k=12, formats=formats) for tool in shipped.tools)
    assert sum(not shipped.search(words, top_k=12, formats=["DICOM"]) for words in OFF) >= 14
    assert {"lungmask", "TotalSegmentator"} <= {*shipped.search("segment lungs", top_k=12, formats=["DICOM"])}


HOSTILE = ["", "the of and", '"', "'; DROP TABLE records; --", "NEAR(a b)", "name:x OR *", "-", "\x00", "\ud800"]
HOSTILE += ["😀" * 99, "a" * 100_000, "ct " * 5_000, "qqqqzzzz"]


def test_any_words_are_searched_for_none_is_an_expression_and_excluded_tools_cost_no_place(retriever):
    assert all(len(retriever.search(words, top_k=3)) <= 3 for words in HOSTILE)
    for words in ("outline organs", "Cutter", "cutter cutter"):
        for exclude in (["Cutter"], ["CUTTER", "unknown"], ("cutter", "cutter")):
            assert "Cutter" not in retriever.search(words, top_k=7, exclude=exclude)
    assert retriever.search("outline organs", top_k=1, exclude=["Cutter"]) == ["Twin"]
    assert retriever.search("outline organs", top_k=7, exclude=[tool.name for tool in TOOLS]) == []


@settings(max_examples=60, deadline=None)
@given(words=st.text(max_size=80), top_k=st.integers(1, 9), exclude=st.lists(st.sampled_from([t.name for t in TOOLS])))
def test_hits_are_distinct_and_allowed(retriever, words, top_k, exclude):
    names = retriever.search(words, top_k=top_k, exclude=exclude)
    assert len(names) <= top_k
    assert len(set(names)) == len(names)
    assert not set(names) & set(exclude)


QUERIES = [
    "outline nuclei in 2D TIFF", "denoise brain MRI", "align CT scans", "tracking",
    "read files without programming",
]  # fmt: skip
CODE = """
import json
from tests.envs.software_adviser.test_retrieval import QUERIES, Retriever, read_catalogue
retriever = Retriever(read_catalogue())
print(json.dumps([retriever.search(words, top_k=12) for words in QUERIES]))
"""


@pytest.mark.slow
def test_every_process_and_thread_finds_the_same():
    retriever = Retriever(read_catalogue())
    expected = [retriever.search(words, top_k=12) for words in QUERIES]
    assert all(len(found) == 12 for found in expected)
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment)
    assert json.loads(done.stdout) == expected, done.stderr
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda words: retriever.search(words, top_k=12), QUERIES * 20))
    assert found == expected * 20


def test_a_pickled_and_a_forked_retriever_prepare_themselves(retriever):
    expected = retriever.search("outline nuclei", top_k=3)
    assert pickle.loads(pickle.dumps(retriever)).search("outline nuclei", top_k=3) == expected
    child = os.fork()
    if child == 0:
        os._exit(0 if retriever.search("outline nuclei", top_k=3) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_scores_that_differ_in_the_last_bits_keep_the_order_of_the_catalogue():
    found = Retriever([make_tool(name) for name in ("d", "b", "c", "a")])
    found._score_words = lambda words: np.array([0.3, 0.1 + 0.2, 0.30000000000000004, 0.1])
    assert found.search("organs", top_k=3) == ["d", "b", "c"]


LIGHT_SHEET = ("modalities", "fluorescence"), ("variants", "light-sheet")


@each(
    ("words", "formats", "expected"),
    [
        ("segment the liver in CT", (), {("tasks", "segmentation"), ("modalities", "CT"), ("structures", "liver")}),
        ("brain.nii.gz", (), {("formats", "NIfTI"), ("structures", "brain")}),
        ("open source only", (), {("license", "free")}),
        ("a light-sheet time lapse", (), {*LIGHT_SHEET, ("dimensions", "2D+t"), ("dimensions", "3D+t")}),
        ("TIFF and tif", ("TIFF",), {("formats", "TIFF")}),
        ("no GPU please", (), {("gpu", "no")}),
        ("I have a GPU", (), set()),
        ("", (), set()),
    ],
)
def test_wishes_are_read_from_words(words, formats, expected):
    wishes = read_wishes(words, formats)
    assert {(kind, word) for kind, facts in wishes for word in facts} == expected
    assert len(set(wishes)) == len(wishes)


VOCABULARY = {
    "tasks": TASKS, "modalities": MODALITIES, "dimensions": DIMENSIONS, "formats": FORMATS, "interfaces": INTERFACES,
}  # fmt: skip


def test_the_table_of_words_knows_the_whole_vocabulary_and_nothing_else():
    known = {}
    for (kind, word), phrases in read_table():
        assert phrases
        assert all(phrases)
        known.setdefault(kind, []).append(word)
    assert {kind: sorted(words) for kind, words in known.items() if kind in VOCABULARY} == {
        kind: sorted(set(words) - {"any"}) for kind, words in VOCABULARY.items()
    }
    assert known.keys() - VOCABULARY.keys() == {"gpu", "demo", "license", "structures", "variants"}


def test_a_tool_for_any_modality_fits_each_and_an_unknown_need_of_a_gpu_fits_none():
    assert has_fact(TOOLS[-1], "modalities", "OCT")
    needs = [has_fact(make_tool("x", gpu=gpu), "gpu", "no") for gpu in ("no", "optional", "yes", "unknown")]
    assert needs == [True, True, False, False]
    licenses = ["MIT", "Apache-2.0 OR GPL-3.0", "GPL-3.0", None]
    permissive = [has_fact(make_tool("x", license=one), "license", "permissive") for one in licenses]
    assert permissive == [True, True, False, False]
    free = [has_fact(make_tool("x", license=one), "license", "free") for one in (*licenses, "LicenseRef-FSL")]
    assert free == [True, True, True, False, False]
    unfree = ["GPL-3.0 AND CC-BY-NC-4.0", "CC-BY-ND-4.0", "BUSL-1.1", "SSPL-1.0", "PolyForm-Noncommercial-1.0.0"]
    assert not any(has_fact(make_tool("x", license=one), "license", "free") for one in unfree)
    assert has_fact(make_tool("x", license="MIT AND BSD-3-Clause"), "license", "permissive")
