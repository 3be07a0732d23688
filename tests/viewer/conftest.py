from tests.support.browser import chromium, page  # noqa: F401  (fixtures)
