"""`publish` without its check, for tests of what else it does."""


def leave_out_check(patch):
    """`publish` no longer checks the package in a fresh environment, which takes seconds.

    Args:
        patch: a `pytest.MonkeyPatch`, which undoes it.
    """
    patch.setattr("viewbox.publish.package.check_staged", lambda folder: [])
