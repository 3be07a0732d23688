"""Times the page of saved episodes in Chromium: a file of 2,000 episodes, and 100,000 served ones.

    python benchmarks/view.py [--quick]

The episodes are those of store.py. `load`: from the start of navigation until the table has rows. `page`, `filter`,
`sort`: from the key or click until the rows have changed and are painted; the pause that the box makes after typing is
part of it. Medians of 5. The last line is one JSON object; exit code 1 if a bar is missed.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import uvicorn
from playwright.sync_api import Page, sync_playwright
from store import make_episode, make_images  # the script of that name

from viewbox.rollouts.store.writer import EpisodeWriter
from viewbox.viewer.report import write_report
from viewbox.viewer.server import HOST, Viewer, open_socket
from viewbox.viewer.sources import find_sets, read_all

CHROMIUM = "/usr/bin/chromium"
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
BARS = {"load": 2000, "page": 300, "filter": 300}  # ms
ROUNDS = 5
# Runs `act`, then waits until the rows are others and have been painted, at most 10 seconds.
TIME = """async (act) => {
  const parts = [".pager", "table.episodes tbody th", "table.episodes th[aria-sort]"];
  const read = () => parts.map((one) => document.querySelector(one)?.innerText).join();
  const before = read(), start = performance.now();
  ACTS[act]();
  while (read() === before && performance.now() < start + 10000) await new Promise(requestAnimationFrame);
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - start;
}"""
ACTS = """{
  next: () => press(".pager button", "next"),
  filter: () => type("where", "reward.box<0.4 and tool=zoom and sample=3"),
  clear: () => type("where", ""),
  search: () => type("search", "t77"),
  unsearch: () => type("search", ""),
  sort: () => press("table.episodes thead button", "task"),
  unsort: () => press("table.episodes thead button", "line"),
}"""
TYPE = """(id, text) => {
  const box = document.getElementById(id);
  box.value = text;
  box.dispatchEvent(new Event("input"));
}"""
PRESS = """(where, text) =>
  [...document.querySelectorAll(where)].find((one) => one.innerText.startsWith(text)).click()"""
READY = "performance.now() * (document.querySelectorAll('table.episodes tbody tr').length > 0)"


def write(folder: Path, count: int) -> None:
    """Save episodes of five replies."""
    images = make_images()
    with EpisodeWriter(folder) as writer:
        for number in range(count):
            writer.append(make_episode(number, images, False))


def open_page(page: Page, address: str) -> float:
    """Open the page; the milliseconds until the table has rows."""
    page.goto("about:blank")
    page.goto(address)
    while not (found := page.evaluate(READY)):
        page.wait_for_timeout(5)
    return float(found)


def time_acts(page: Page) -> dict[str, float]:
    """Milliseconds of paging, filtering, searching and sorting."""
    script = f"(act) => {{ const type = {TYPE}, press = {PRESS}, ACTS = {ACTS}; return ({TIME})(act); }}"
    times: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for act in ("next", "filter", "clear", "search", "unsearch", "sort", "unsort"):
            times.setdefault(act, []).append(float(page.evaluate(script, act)))
    named = {"page": "next", "filter": "filter", "search": "search", "sort": "sort"}
    return {name: round(statistics.median(times[act])) for name, act in named.items()}


def measure_file(page: Page, folder: Path) -> dict[str, float]:
    """Return a self-contained file."""
    sets = find_sets([folder])
    count, started = read_all(sets), time.perf_counter()
    size = write_report(sets, folder / "report.html")[0]
    found = {"episodes": count, "write_s": round(time.perf_counter() - started, 1), "mb": round(size / 2**20, 1)}
    loads = [open_page(page, f"file://{folder}/report.html") for _ in range(ROUNDS)]
    return {**found, "load": round(statistics.median(loads)), **time_acts(page)}


def measure_served(page: Page, folder: Path) -> dict[str, float]:
    """Return the same page from a server, whose index is read already."""
    started, sets = time.perf_counter(), find_sets([folder])
    count = read_all(sets)
    found = {"episodes": count, "index_s": round(time.perf_counter() - started, 1)}
    opened = open_socket(0)
    server = uvicorn.Server(uvicorn.Config(Viewer(sets).build_app("key"), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    loads = [open_page(page, f"http://{HOST}:{opened.getsockname()[1]}/key/") for _ in range(3)]
    found |= {"load": round(statistics.median(loads)), **time_acts(page)}
    server.should_exit = True
    thread.join(10)
    opened.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="200 and 2,000 episodes")
    small, large = (200, 2_000) if parser.parse_args().quick else (2_000, 100_000)
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folders = Path(temporary) / "small", Path(temporary) / "large"
        for folder, count in zip(folders, (small, large), strict=True):
            write(folder, count)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        file = measure_file(browser.new_page(), folders[0])
        print(f"file:   {file}")
        served = measure_served(browser.new_page(), folders[1])
        print(f"served: {served}")
        browser.close()
    met = file["load"] <= BARS["load"] and all(served[name] <= BARS[name] for name in ("page", "filter"))
    print(json.dumps({"bars_ms": BARS, "file": file, "served": served, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
