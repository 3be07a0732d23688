"""A real browser for tests of pages; without one they are skipped, and say how to get it."""

import shutil
import time
from pathlib import Path

import pytest

PATHS = ("/usr/bin/chromium", "/usr/bin/chromium-browser")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
"""


@pytest.fixture(scope="module")
def chromium():
    """The browser, for the tests of one file: no other event loop can run in this thread while it is open."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs a browser: pip install playwright")
    path = next((path for path in PATHS if Path(path).exists()), shutil.which("chromium"))
    if path is None:
        pytest.skip("needs a browser: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS.split())
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tab(chromium):
    """One page for all tests of a file: each new one takes a second of the processor."""
    opened = chromium.new_context(viewport={"width": 1200, "height": 900}).new_page()
    opened.add_init_script(WATCH)
    opened.problems = []
    opened.on("pageerror", lambda error: opened.problems.append(f"error {error}"))
    opened.on("dialog", lambda dialog: (opened.problems.append("dialog"), dialog.dismiss()))
    opened.on("request", lambda request: _check_request(opened, request.url))
    opened.on("popup", lambda _: opened.problems.append("popup"))
    return opened


@pytest.fixture
def page(tab):
    """A page whose `problems` are what it should not do: errors, dialogs, requests to elsewhere."""
    tab.problems.clear()
    yield tab
    tab.problems += tab.evaluate("[...window.violations, ...(window.hacked ? ['hacked'] : [])]")
    tab.evaluate("localStorage.clear()")
    tab.emulate_media(color_scheme="light")
    tab.goto("about:blank")
    assert tab.problems == []


def _check_request(page, url):
    if not url.startswith(("file:///", "data:", "http://127.0.0.1:")):
        page.problems.append(f"request {url}")


def wait_until(page, expression, seconds=20):
    """Wait until an expression is true in the page. Playwright's own waiting needs what the page's policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"{expression} is not true; the page says: {page.inner_text('body')[:2000]}"
        page.wait_for_timeout(20)
