"""The page that compares two sets, in a real browser: figures, every pair, groups by a field, links to episodes."""

import pytest
from msgspec.structs import replace

from tests.support.browser import wait_until
from tests.support.saved_episodes import written
from tests.viewer.test_browser import make, open_page, report
from tests.viewer.test_server import KEY, serving
from viewbox.records import Task
from viewbox.rollouts.scoring.compare import compare_runs


def test_two_sets_are_compared_with_links_to_the_tasks_that_flipped(page, tmp_path):
    a = written(tmp_path / "a", *(make(n, 0.0) for n in range(8)))
    b = written(tmp_path / "b", *(make(n, float(n > 3)) for n in range(8)))
    open_page(page, report(tmp_path, a, b), "#/compare/0/1")
    assert "in the second run" in page.inner_text("main") or "No clear difference" in page.inner_text("main")
    page.locator("main table a").nth(1).click()
    page.wait_for_selector(".turn")
    assert page.evaluate("location.hash").startswith("#/run/1/group/")


@pytest.fixture
def runs(tmp_path):
    """Eight tasks of two kinds: of the first four the second wins three and loses one; the others tie."""

    def save(name, totals):
        made = (
            replace(
                make(n, total), task=Task(f"t{n}", reference={"kind": "ab"[n // 4], "label": 1}), info={"sample": 0}
            )
            for n, total in enumerate(totals)
        )
        return written(tmp_path / name, *made)

    return save("first", [0, 0, 0, 1, 1, 1, 0, 0]), save("second", [1, 1, 0.2, 0, 1, 1, 0, 0])


def read_table(page, caption):
    rows = page.locator("table").filter(has_text=caption).locator("tbody tr").all()
    return [row.locator("th, td").all_inner_texts() for row in rows]


def test_every_task_is_a_part_of_the_plot_and_leads_to_its_episode(page, runs, tmp_path):
    open_page(page, report(tmp_path, *runs), "#/compare/0/1")
    assert page.locator(".outcomes").first.inner_text().split("\n") == ["3 wins", "4 ties", "1 loss"]
    titles = page.locator(".pairs circle title").all_text_contents()
    assert sorted(titles) == [
        "2 tasks at about 0.000 and 0.000, such as t6", "2 tasks at about 0.000 and 1.000, such as t0",
        "2 tasks at about 1.000 and 1.000, such as t4", "t2: 0.000 and 0.200", "t3: 1.000 and 0.000",
    ]  # fmt: skip
    place = "(one) => [one.cx.baseVal.value, one.cy.baseVal.value]"
    assert page.locator(".pairs circle.losses").evaluate(place) == [
        216,
        192,
    ]  # the first solves it, the second does not
    page.locator(".pairs a").filter(has_text="t2").click()
    page.wait_for_selector(".turn")
    assert page.evaluate("location.hash") == "#/run/1/episode/3"


def test_figures_are_rounded_as_on_the_command_line(page, tmp_path):
    values = [n / 16 for n in range(-16, 17)] + [0.0005, 1 / 3, 2.5, 0.9995, 1e-9]
    open_page(page, report(tmp_path, written(tmp_path / "a", make(0))))
    assert page.evaluate("values => values.map(formatFixed)", values) == [f"{value:.3f}" for value in values]


@pytest.mark.parametrize("served", [False, True])
def test_tasks_are_grouped_by_a_field_as_on_the_command_line(page, runs, tmp_path, served):
    def check(address):
        open_page(page, address, "#/compare/0/1")
        assert "reference.label" not in page.locator("#by").inner_text()  # it has one value
        page.locator("#by").select_option(label="reference.kind")
        shown = read_table(page, "Reward by reference.kind")
        groups = compare_runs(*runs, by="reference.kind").groups
        assert shown == [
            [
                name,
                "4 (< 20)",
                *(f"{part.mean:.3f}" for part in (one.a, one.b, one.difference)),
                *map(str, (one.wins, one.ties, one.losses)),
            ]
            for name, one in groups.items()
        ]
        found = page.evaluate("location.hash")
        open_page(page, address, found)  # the address can be sent
        assert read_table(page, "Reward by reference.kind") == shown
        open_page(page, address, "#/compare/0/1/%E0%A4%A")
        wait_until(page, "document.getElementById('by').value === ''")

    if served:
        with serving(*runs) as port:
            check(f"http://127.0.0.1:{port}/{KEY}/")
    else:
        check(report(tmp_path, *runs))


def test_a_task_with_several_episodes_is_in_one_table_and_leads_to_its_group(page, tmp_path):
    def save(name, totals):
        return written(
            tmp_path / name,
            *(replace(make(n, total), task=Task("t"), info={"sample": n}) for n, total in enumerate(totals)),
        )

    open_page(page, report(tmp_path, save("first", [0, 1, 0, 0]), save("second", [1, 0, 1, 1])), "#/compare/0/1")
    assert page.locator(".outcomes").first.inner_text() == "1 win"
    assert read_table(page, "Tasks that only the second solves") == [
        ["t", "#1 0.250 (mean of 4)", "#1 0.750 (mean of 4)"]
    ]
    assert page.locator("table").filter(has_text="Tasks that only the first solves").count() == 0
    page.locator("table").filter(has_text="Tasks that only the second solves").locator("a").last.click()
    page.wait_for_selector(".group")
    assert page.evaluate("location.hash") == "#/run/1/group/1"
