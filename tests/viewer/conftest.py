from tests.support.browser import chromium, page, tab  # noqa: F401  (fixtures)
