"""Reads the phrases that mean the same: a small table is shipped, and a user may give another.

# a comment
heart attack = myocardial infarction
"""

from importlib.resources import files
from pathlib import Path

from ....errors import ConfigError
from ....utils.files import read_regular
from .schema import MAX_SYNONYMS
from .words import MAX_PHRASE, MAX_SAME, split_words

MAX_FILE = 2**22  # bytes


def read_shipped_synonyms() -> list[list[str]]:
    """The table that is shipped, for medicine and its images."""
    return parse_synonyms((files(__package__) / "synonyms.txt").read_text(encoding="utf-8"), "synonyms.txt")


def read_synonyms(path: str | Path) -> list[list[str]]:
    """The table of a file.

    Raises:
        ConfigError: the file cannot be read, or a line is not phrases with ` = ` between them.
    """
    try:
        text = read_regular(path, limit=MAX_FILE).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"synonyms {path}: {reason}", key="synonyms", given=str(path)) from None
    return parse_synonyms(text, str(path))


def parse_synonyms(text: str, name: str) -> list[list[str]]:
    """The classes of phrases of a text, a class a line.

    Raises:
        ConfigError: a line is not phrases with ` = ` between them.

    >>> parse_synonyms("# heart\\nheart attack = myocardial infarction\\n", "mine.txt")
    [['heart attack', 'myocardial infarction']]
    >>> parse_synonyms("heart attack", "mine.txt")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: mine.txt: line 1: 'heart attack'; allowed: 2 to 32 phrases of at most 8 words, \
with " = " between them
    """
    classes: list[list[str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        phrases = [phrase.strip() for phrase in line.split(" = ")]
        if not 2 <= len(phrases) <= MAX_SAME or not all(0 < len(split_words(one)) <= MAX_PHRASE for one in phrases):
            allowed = f'2 to {MAX_SAME} phrases of at most {MAX_PHRASE} words, with " = " between them'
            raise ConfigError(f"{name}: line {number}: {line.strip()!r:.80}; allowed: {allowed}", key="synonyms")
        classes.append(phrases)
    if sum(map(len, classes)) > MAX_SYNONYMS:
        raise ConfigError(f"{name}: more than {MAX_SYNONYMS:,} phrases", key="synonyms")
    return classes
