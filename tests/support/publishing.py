"""`publish` with less of its check, for tests of what else it does."""

from functools import partial

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
