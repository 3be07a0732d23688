"""`publish` with less of its check, for tests of what else it does."""

from functools import partial
from pathlib import Path

from viewbox.publish import vendor
from viewbox.publish.checks import check_package


def leave_out_check(patch):
    """`publish` no longer checks the package in a fresh environment, which takes seconds.

    Args:
        patch: a `pytest.MonkeyPatch`, which undoes it.
    """
    patch.setattr("viewbox.publish.package.check_staged", lambda folder: [])


def check_only(patch, *rows):
    """`publish` checks these rows of the package, and those that they need.

    Args:
        patch: a `pytest.MonkeyPatch`, which undoes it.
        rows: their names.
    """
    patch.setattr("viewbox.publish.package.check_package", partial(check_package, rows=rows))


def copy_little(patch):
    """`publish` copies a few files of viewbox instead of hundreds.

    Args:
        patch: a `pytest.MonkeyPatch`, which undoes it.
    """
    few = ("LICENSE", "__init__.py", "errors.py", "py.typed", "records.py", "version.py")
    patch.setattr(vendor, "list_library_files", lambda: tuple(map(Path, few)))
