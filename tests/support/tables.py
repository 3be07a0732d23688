"""Tables of many short rows that are one test: each row is tried, and those that fail are named together."""

import functools
import inspect


def for_each(names, rows):
    """As `pytest.mark.parametrize`, but as one case; fixtures are shared by all rows.

    >>> @for_each("number", [1, 2])
    ... def test(number):
    ...     assert number < 2
    >>> test()
    Traceback (most recent call last):
    AssertionError: 1 of 2 rows fail:
    (2,): AssertionError
    """
    names = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
    rows = [row if len(names) > 1 else (row,) for row in rows]

    def decorate(test):
        @functools.wraps(test)
        def run(**fixtures):
            failed = []
            for row in rows:
                try:
                    test(**dict(zip(names, row, strict=True)), **fixtures)
                except Exception as error:  # also what pytest.raises did not see
                    failed.append(f"{row!r:.300}: {type(error).__name__}{f': {error}' if str(error) else ''}")
            assert not failed, f"{len(failed)} of {len(rows)} rows fail:\n" + "\n".join(failed)

        signature = inspect.signature(test)
        kept = [one for name, one in signature.parameters.items() if name not in names]
        run.__signature__ = signature.replace(parameters=kept)
        return run

    return decorate
