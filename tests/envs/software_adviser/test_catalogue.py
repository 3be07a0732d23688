"""The shipped catalogue holds what it promises, and a stranger's catalogue loses bad rows, never the run."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.tables import each
from viewbox.cli.app import app
from viewbox.envs.software_adviser import SHIPPED, SoftwareTool, check_catalogue, read_catalogue
from viewbox.envs.software_adviser.catalogue import (
    DIMENSIONS,
    FORMATS,
    FROM_MEMORY,
    INTERFACES,
    LISTS,
    MODALITIES,
    TASKS,
    fold_url,
)
from viewbox.envs.software_adviser.tools import write_tool
from viewbox.errors import ConfigError
from viewbox.utils.values import fold_text

ROOT = Path(__file__).resolve().parents[3]
ROWS = [json.loads(line) for line in SHIPPED.read_text().splitlines()]
FACTS = ["name", "repository", "tasks.segmentation", "modalities.CT", "dimensions.3D", "formats.DICOM", "license"]
FACTS += ["demo", "gpu", "interfaces.CLI", "features"]
LOOKED_UP = {"source": "https://example.org/readme", "looked_up": "2026-01-31", "facts": FACTS}
ROW = {
    "name": "Cutter", "repository": "https://example.org/cutter", "tasks": ["segmentation"], "modalities": ["CT"],
    "dimensions": ["3D"], "formats": ["DICOM"], "license": "MIT", "demo": "https://example.org/demo?tab=1#try",
    "gpu": "no", "interfaces": ["CLI"], "features": "Cuts organs out.", "sources": [LOOKED_UP],
}  # fmt: skip
GOOD = {**ROW, "name": "Other", "repository": "https://example.org/other"}


@pytest.fixture
def write(tmp_path):
    """Writes rows, or lines of text, as JSONL and returns the path."""

    def run(*rows, name="mine.jsonl"):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
        return tmp_path / name

    return run


def test_the_shipped_catalogue_has_no_problem_and_its_names_and_repositories_are_unique():
    found = check_catalogue()
    assert (len(found.tools), found.problems) == (len(ROWS), ())
    assert len({fold_text(row["name"]) for row in ROWS}) == len({fold_url(row["repository"]) for row in ROWS}) == 237


@each(
    ("key", "words", "fewest"),
    [
        ("tasks", TASKS, 2), ("dimensions", DIMENSIONS, 20), ("modalities", MODALITIES, 1), ("formats", FORMATS, 1),
        ("interfaces", INTERFACES, 10), ("gpu", ("no", "optional", "yes"), 30),
    ],
)  # fmt: skip
def test_every_word_of_a_vocabulary_is_used_by_several_tools(key, words, fewest):
    used = Counter(word for row in ROWS for word in (row[key] if key in LISTS else [row[key]]))
    assert set(used) == set(words)
    assert min(used.values()) >= fewest


def test_every_fact_of_the_shipped_catalogue_has_one_source_and_most_were_looked_up_often_in_one_commit():
    looked_up = remembered = 0
    for row in ROWS:
        tool = SoftwareTool.model_validate(row)
        named = [fact for source in tool.sources for fact in source.facts]
        assert sorted(named) == sorted(tool.list_facts()), tool.name
        for source in row["sources"]:
            if source["source"] == FROM_MEMORY:
                remembered += len(source["facts"])
                assert "looked_up" not in source
            else:
                looked_up += len(source["facts"])
                assert re.fullmatch(r"20\d\d-\d\d-\d\d", source["looked_up"])
    assert looked_up > 6 * remembered
    links = {source["source"] for row in ROWS for source in row["sources"] if "/blob/" in source["source"]}
    assert len(links) > 300
    assert all(re.match(r"https://github\.com/[\w.-]+/[\w.-]+/blob/[0-9a-f]{40}/.", link) for link in links)


def test_the_tool_of_the_page_is_read_and_its_unsourced_facts_are_known():
    page = (ROOT / "docs" / "data.md").read_text()
    (row,) = re.findall(r"```jsonl\n(.*?)```", page, re.DOTALL)
    assert "name" in SoftwareTool.model_validate(json.loads(row)).list_unsourced()
    adviser = " ".join((ROOT / "docs" / "software_adviser.md").read_text().split())
    assert f"(`envs/software_adviser/catalogue.jsonl`): {len(ROWS)} tools" in adviser


BAD = {  # a key, its value, and what is said of it
    "huge name": ("name", "x" * 5_000_000, "name = "),
    "null for a name": ("name", None, "name = None; allowed: text"),
    "text for tasks": ("tasks", "segmentation", "tasks = 'segmentation'; allowed: a list"),
    "no task": ("tasks", [], "tasks = []"),
    "twice the same task": ("tasks", ["segmentation", "segmentation"], "each word once"),
    "unknown task": ("tasks", ["segmentatoin"], "did you mean 'segmentation'?"),
    "unknown gpu": ("gpu", "maybe", "gpu = 'maybe'; allowed: 'no', 'optional', 'yes' or 'unknown'"),
    "half a surrogate": ("name", "Cut\ud800ter", "name = "),
    "http": ("repository", "http://example.org/cutter", "allowed: https://host/path"),
    "script": ("demo", "javascript:alert(1)", "allowed: https://host/path"),
    "day that never was": ("sources", [{**LOOKED_UP, "looked_up": "2026-02-30"}], "sources.0.looked_up"),
    "url without a date": ("sources", [{"source": "https://example.org/readme", "facts": FACTS}], "looked_up: a day"),
    "memory with a date": ("sources", [{**LOOKED_UP, "source": FROM_MEMORY}], "looked_up: a day"),
    "source that is none": ("sources", [{**LOOKED_UP, "source": "a friend"}], "allowed: https://host/path"),
    "source of another fact": ("sources", [{**LOOKED_UP, "facts": ["formats.PNG"]}], "unknown fact 'formats.PNG'"),
    "unknown key": ("rank", 1, "unknown key 'rank'"),
    "unknown structure": ("structures", ["lungs"], "structures = 'lungs': allowed: a word of structures.txt"),
    "text for structures": (
        "structures",
        "lung",
        "structures = 'lung': allowed: a list, or lists by task",
    ),
    "null for structures": ("structures", None, "structures = None: allowed: a list"),
    "twice a structure": ("structures", ["lung", "lung"], "allowed: each word once"),
    "task of another tool": ("structures", {"tracking": [], "other tasks": []}, "unknown task of this tool 'tracking'"),
    "misspelt task": ("structures", {"segmentatoin": [], "other tasks": []}, "did you mean 'segmentation'?"),
    "task without structures": (
        "structures",
        {},
        "structures: lacking for segmentation; allowed: a list",
    ),
    "no other task": ("structures", {"segmentation": [], "other tasks": []}, "no task is left for 'other tasks'"),
    "text for a task": ("structures", {"segmentation": "lung"}, "structures.segmentation = 'lung'; allowed: a list"),
    "unknown one of a task": (
        "structures",
        {"segmentation": ["lungs"]},
        "structures.segmentation.0 = 'lungs': ",
    ),
    "source of another task": ("sources", [{**LOOKED_UP, "facts": ["structures.segmentation.lung"]}], "unknown fact"),
}


BAD |= {f"no {key}": (key, None, f"{key}: is missing") for key in ("name", "repository", *LISTS[:3], "features")}
BAD |= {f"line {line}": (line, None, "") for line in ("{", "[]", "{}")}


@pytest.mark.slow
@each("case", list(BAD))
def test_a_bad_value_costs_its_row_and_is_named_with_file_line_and_key(write, case):
    key, value, words = BAD[case]
    row = {**ROW, key: value}
    if case.startswith(("no ", "line ")) and value is None:  # a key that is missing, or a line that is no tool
        row = key if case.startswith("line ") else {name: one for name, one in ROW.items() if name != key}
    found = check_catalogue(write(row, GOOD))
    assert [tool.name for tool in found.tools] == ["Other"]
    assert found.tools[0].sources[0].looked_up.year == 2026
    assert found.problems[0].startswith("mine.jsonl: line 1: ")
    assert words in found.problems[0]
    assert all(len(text) < 2000 for text in found.problems)


def test_structures_are_a_list_or_lists_by_task_and_each_is_a_fact_with_a_source(write):
    lists = {"segmentation": ["lung", "liver"], "other tasks": ["whole body"]}
    facts = [*FACTS, "tasks.registration", "structures.segmentation.lung", "structures.whole body"]
    row = {**ROW, "tasks": ["segmentation", "registration"], "structures": lists}
    found = check_catalogue(write({**row, "sources": [{**LOOKED_UP, "facts": facts}]}))
    assert found.problems[0].startswith("mine.jsonl: line 1: sources: lacking for structures.segmentation.liver;")
    [tool] = found.tools
    assert [tool.structures_for(task) for task in ("segmentation", "registration", "")] == [
        ("lung", "liver"), ("whole body",), ("lung", "liver", "whole body"),
    ]  # fmt: skip
    assert "made for: lung, liver (segmentation), whole body (other tasks);" in write_tool(tool)
    plain = SoftwareTool.model_validate({**ROW, "structures": ["lung"], "variants": ["micro-CT"], "sources": []})
    assert (plain.structures_for("segmentation"), plain.structures_for("")) == (("lung",), ("lung",))
    assert "made for: lung, micro-CT;" in write_tool(plain)
    assert {"structures.lung"} <= {*plain.list_facts()}
    for one in (tool, plain):
        assert SoftwareTool.model_validate_json(one.model_dump_json()) == one


SAME = [("name", "CUTTER"), ("name", "Ｃutter"), ("repository", "https://Example.org/Cutter.git")]


@each("key, value", [*SAME, ("repository", "https://example.org/cutter/#readme")])
def test_the_second_of_two_rows_with_one_name_or_repository_is_left_out(write, key, value):
    found = check_catalogue(write(ROW, {**GOOD, key: value}))
    assert [tool.name for tool in found.tools] == ["Cutter"]
    assert found.problems == (f"mine.jsonl: line 2: {key} = {value!r}: has been given by mine.jsonl: line 1",)


def test_facts_without_a_source_can_be_read_and_are_named(write):
    path = write({**ROW, "sources": [{**LOOKED_UP, "facts": FACTS[1:]}]}, {**GOOD, "sources": []})
    assert len(read_catalogue(path)) == 2
    first, second = check_catalogue(path).problems
    assert first == "mine.jsonl: line 1: sources: lacking for name; allowed: a source for every fact"
    assert second.startswith("mine.jsonl: line 2: sources: lacking for name, repository")


@each(
    ("name", "words"),
    [
        ("bad.jsonl", r"bad\.jsonl: holds no tool that can be used; the first problem: .* gpu = "),
        ("mine.csv", r"catalogue = .*allowed: \.jsonl, \.ndjson"), ("missing.jsonl", "catalogue = .*No such"),
        ("folder.jsonl", "catalogue = .*Is a"),
    ],
)  # fmt: skip
def test_a_catalogue_of_which_nothing_can_be_used_is_refused_with_its_first_problem(write, tmp_path, name, words):
    write({**ROW, "gpu": "maybe"}, name="bad.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(ConfigError, match=words):
        read_catalogue(tmp_path / name)


def test_data_check_prints_every_problem_of_a_catalogue_and_ends_with_1_or_0_if_there_is_none(write):
    path = write({**ROW, "gpu": "maybe"}, GOOD, {**GOOD, "name": "\x1b[31mRed"})
    result = CliRunner().invoke(app, ["data", "check", str(path)])
    assert result.exit_code == 1
    for words in ("line 1: gpu = 'maybe'", "line 3: repository = ", "1 tools, 2 problems"):
        assert f"mine.jsonl: {words}" in result.output
    assert "\x1b" not in result.output
    result = CliRunner().invoke(app, ["data", "check", str(SHIPPED)])
    assert (result.exit_code, result.output) == (0, "catalogue.jsonl: 237 tools, 0 problems\n")
