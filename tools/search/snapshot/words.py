"""The words of a query: split, stemmed as the index stems them, and with their synonyms.

Words that a model wrote never reach FTS5 as they are. `split_words` keeps letters and digits only, and `quote` puts
them in quotation marks, where FTS5 has no operators.
"""

import re
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from itertools import chain

from .schema import TOKENIZER

MAX_QUERY = 2_000  # characters of a query that are read
MAX_WORDS = 24  # groups of a query; further ones are left out
MAX_SAME = 32  # phrases that mean the same as one; further ones are left out
_WORD = re.compile(r"[^\W_]{1,100}")

# Words that do not say what an article is about; a query of nothing else is searched for them.
STOP_WORDS = frozenset((files(__package__) / "stop_words.txt").read_text(encoding="utf-8").split())


@dataclass(frozen=True)
class SynonymGroup:
    """Phrases that mean the same: a record that holds any of them matches."""

    phrases: tuple[tuple[str, ...], ...]  # each of several words
    required: bool = True  # False if the words are also part of a longer group: records without them match as well


@dataclass(frozen=True)
class Synonyms:
    """Which phrases mean the same. `classes` are looked up by the stems of each of their phrases.

    >>> synonyms = Synonyms.build([["heart attack", "myocardial infarction"]])
    >>> synonyms.group(["acute", "heart", "attacks"])[1].phrases
    (('heart', 'attacks'), ('myocardial', 'infarction'))
    """

    classes: Mapping[tuple[str, ...], tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    longest: int = 1

    @classmethod
    def build(cls, classes: Sequence[Sequence[str]]) -> "Synonyms":
        """Of lists of phrases; a phrase may stand in several."""
        groups: dict[tuple[str, ...], tuple[tuple[str, ...], ...]] = {}
        for phrases in classes:
            split = [tuple(split_words(phrase)) for phrase in phrases[:MAX_SAME]]
            for words in split:
                known = groups.get(stem_all(words), ())
                if len(known) < MAX_SAME:
                    groups[stem_all(words)] = tuple(dict.fromkeys((*known, *split)))[:MAX_SAME]
        return cls(groups, max(map(len, groups), default=1))

    def group(self, words: Sequence[str]) -> list[SynonymGroup]:
        """Return the groups of a query: a group for each longest phrase with synonyms, and one for each word."""
        groups: list[SynonymGroup] = []
        stems = [stem_word(word) for word in words]
        place = 0
        while place < len(words):
            for length in range(min(self.longest, len(words) - place), 0, -1):
                same = self.classes.get(tuple(chain.from_iterable(stems[place : place + length])), ())
                if same or length == 1:
                    phrase = tuple(words[place : place + length])
                    groups.append(SynonymGroup(_drop_repeated((phrase, *same))))
                    groups += [SynonymGroup(((word,),), False) for word in phrase if length > 1 and is_telling(word)]
                    place += length
                    break
        return groups


def read_shipped_synonyms() -> list[list[str]]:
    """Return the table that is shipped, for medicine and its images: classes of phrases that mean the same."""
    lines = (files(__package__) / "synonyms.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip().split(" = ") for line in lines if line.strip() and not line.startswith("#")]


@lru_cache(maxsize=1)
def get_synonyms() -> Synonyms:
    return Synonyms.build(read_shipped_synonyms())


def _drop_repeated(phrases: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """Return the phrases without those whose stems stood before."""
    first: dict[tuple[str, ...], tuple[str, ...]] = {}
    for phrase in phrases:
        first.setdefault(stem_all(phrase), phrase)
    return tuple(first.values())


def split_words(text: str) -> list[str]:
    """Return the runs of letters and digits of a text, in lower case; the text is read up to `MAX_QUERY` characters.

    >>> split_words('x-ray NEAR("chest*", 2) title:^CT')
    ['x', 'ray', 'near', 'chest', '2', 'title', 'ct']
    """
    return [word.lower() for word in _WORD.findall(text[:MAX_QUERY])]


def is_telling(word: str) -> bool:
    """Return whether a word says what an article is about."""
    return word not in STOP_WORDS


def read_query(text: str, synonyms: Synonyms) -> list[SynonymGroup]:
    """Return the groups of a query, none twice; without stop words, unless there is nothing else."""
    groups = synonyms.group(split_words(text))
    telling = [group for group in groups if any(is_telling(word) for phrase in group.phrases for word in phrase)]
    unique: dict[tuple[tuple[str, ...], ...], SynonymGroup] = {}
    for group in telling or groups:
        stems = tuple(sorted(map(stem_all, group.phrases)))
        if any(stems) and not (stems in unique and unique[stems].required):
            unique[stems] = group
    return list(unique.values())[:MAX_WORDS]


def stem_all(words: Sequence[str]) -> tuple[str, ...]:
    """Return the stems of words, as the indexes hold them."""
    return tuple(stem for word in words for stem in stem_word(word))


def quote(phrase: Sequence[str]) -> str:
    """Return a phrase in the language of FTS5, whose words are from `split_words`."""
    return f'"{" ".join(phrase)}"'


_tokenizers = threading.local()  # each thread has an index of its own


@lru_cache(maxsize=2**16)
def stem_word(word: str) -> tuple[str, ...]:
    """Return the stems that the indexes hold for a word: one as a rule, none if FTS5 knows none of its letters.
    FTS5's own tokenizer is asked, through an index in memory.

    >>> stem_word("nodules"), stem_word("Ödeme")
    (('nodul',), ('odem',))
    """
    index: sqlite3.Connection | None = getattr(_tokenizers, "index", None)
    if index is None:
        index = _tokenizers.index = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        index.execute(f"CREATE VIRTUAL TABLE words USING fts5(word, content='', tokenize='{TOKENIZER}')")
        index.execute("CREATE VIRTUAL TABLE stems USING fts5vocab(words, instance)")
    index.execute("INSERT INTO words(rowid, word) VALUES (1, ?)", (word,))
    stems = tuple(stem for (stem,) in index.execute("SELECT term FROM stems ORDER BY offset"))
    index.execute("INSERT INTO words(words) VALUES ('delete-all')")
    return stems
