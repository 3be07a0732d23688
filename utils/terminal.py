"""Prints text of others on a terminal, without letting it control the terminal.

A run, a server or a reward can put anything into a name, an answer or an error. Escape sequences move the cursor, set
the title and write the clipboard (OSC 52); other invisible characters hide or reverse what a person reads.
"""

import io
import logging
import re
import sys

_BREAKS = re.compile("[\t\n\v\f\r\x85\u2028\u2029]+")


def make_printable(text: object, limit: int | None = None) -> str:
    r"""Return the text as a terminal may show it: invisible characters are written out, and only its line breaks act.

    Args:
        text: anything; other objects than text are converted with `str`.
        limit: characters at most; a longer text ends with "…".

    >>> make_printable("a\x1b]52;c;ZXZpbA==\x07b\u202ec")
    'a\\x1b]52;c;ZXZpbA==\\x07b\\u202ec'
    >>> make_printable("one\ntwo"), make_printable("x" * 100, 5)
    ('one\ntwo', 'xxxx…')
    """
    shown = str(text)
    if limit is not None and len(shown) > limit:
        shown = shown[: max(0, limit - 1)] + "…"
    if shown.isprintable():
        return shown
    return "".join(letter if letter.isprintable() or letter == "\n" else _write_out(letter) for letter in shown)


def make_line(text: object, limit: int | None = None) -> str:
    r"""`make_printable` on one line: line breaks and tabs become spaces.

    >>> make_line("one\r\ntwo\tthree")
    'one two three'
    """
    return make_printable(_BREAKS.sub(" ", str(text)), limit)


class PrintableFormatter(logging.Formatter):
    """Formats log records as text that a terminal may show."""

    def format(self, record: logging.LogRecord) -> str:
        return make_printable(super().format(record))


def protect_output() -> None:
    """Make printing safe for a command: no letter that stdout cannot encode raises, and warnings are printable.
    Warnings are logged to stderr as Python does without any handler; if there are handlers, they stay as they are."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if not logging.root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(PrintableFormatter())
        handler.addFilter(lambda record: not _is_printed(record.name))
        logging.root.addHandler(handler)


def _is_printed(name: str) -> bool:
    """Return whether a library prints the records of this logger itself: they would stand there twice."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None and logger is not logging.root:
        if any(getattr(handler, "stream", None) in (sys.stderr, sys.stdout) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _write_out(letter: str) -> str:
    return " " if letter.isspace() and ord(letter) > 32 else letter.encode("unicode_escape").decode("ascii")


def describe_error(error: BaseException, limit: int) -> str:
    """Return an exception on one printable line: it may quote a model, a server or a file.

    >>> describe_error(ValueError("no\\nsuch row"), 100)
    'ValueError: no such row'
    """
    try:
        message = str(error)
    except Exception:
        message = "(no message)"
    if "trust_remote_code" in message:  # transformers advises an argument that nothing here has
        message = "it needs code from its own folder, which viewbox never runs; allowed: what transformers has itself"
    return make_line(f"{type(error).__name__}: {message}", limit)
