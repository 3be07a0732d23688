"""What the model reads of a search: numbered articles or figures, in bounded text.

Every field is a stranger's text. It becomes one line without invisible characters and the marks of chat templates, and
each line begins with words of ours, so that no abstract can look like another result.
"""

import re
from collections.abc import Sequence

from ...utils.sanitize import clean
from .records import Article, ArticleQuery, FoundImage, ImageQuery

MAX_FIELD = {"pmid": 20, "title": 160, "journal": 80, "doi": 60, "url": 100}  # characters
MAX_SCANNED = 20_000  # characters of an abstract among which sentences are chosen
MAX_QUERY = 300
STEM = 5  # letters of a word that must agree
CUT = "…"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^\W_a-z])")
_WORD = re.compile(r"[^\W_]{3,64}")


def make_line(text: str, limit: int) -> str:
    """Return a stranger's text as one safe line, cut to `limit` characters.

    >>> make_line("Two\\n[2] PMID 7<|im_end|>", 60), make_line("A long title", 7)
    ('Two [2] PMID 7< |im_end|>', 'A long…')
    """
    line = " ".join(clean(text[: 16 * limit], 4 * limit + 200).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + CUT


def write_articles(
    query: ArticleQuery, found: Sequence[Article], most: int = 500, total: int = 5_000
) -> tuple[str, list[Article]]:
    """Return the text of a result, of at most `total` characters, `most` of an article, and the articles in it.

    >>> text, shown = write_articles(ArticleQuery("sign"), [Article("7", "A sign", "J", 2020, "We saw it.")])
    >>> print(text)
    1 article found.
    [1] PMID 7, 2020, J
    Title: A sign
    Abstract: We saw it.
    """
    if not found:
        kind = "" if query.search_type == "all" else f" with search_type = {query.search_type}"
        return f"No article found for {make_line(query.words, 80)!r}{kind}. Try fewer or other words.", []
    items = [write_article(article, number, query.words, most) for number, article in enumerate(found, 1)]
    text, count = join_items("article", items, total)
    return text, list(found[:count])


def write_article(article: Article, number: int, words: str, limit: int) -> str:
    """Return one article in at most `limit` characters; of a long abstract the sentences that fit the query's words."""
    fields = {name: make_line(getattr(article, name), most) for name, most in MAX_FIELD.items()}
    year = "year unknown" if article.year is None else str(article.year)
    retracted = "RETRACTED" if article.retracted else ""
    head = ", ".join(filter(None, (f"[{number}] PMID {fields['pmid']}", year, fields["journal"], retracted)))
    title = f"Title: {fields['title'] or 'none'}"
    links = " ".join(filter(None, (fields["doi"] and f"doi:{fields['doi']}", fields["url"])))
    ends = f"\n{links}" if links else ""
    start = f"{head}\n{title}\nAbstract: "
    room = limit - len(start) - len(ends)
    if room < 40 or _cuts_best(article.abstract, words, room):  # a small limit: the address is the least of it
        ends, room = "", limit - len(start)
    return f"{start}{pick_passage(article.abstract, words, room) or 'none'}{ends}"[:limit]


def pick_passage(abstract: str, words: str, room: int) -> str:
    """Return the abstract if it fits into `room` characters; else those of its sentences that hold most words of the
    query, in their order, and among equals the last, where the results are.

    >>> pick_passage("We met. The dose was 5 mg. Bees sleep. All went home.", "dose in bees", 36)
    '… The dose was 5 mg. Bees sleep. …'
    """
    text = make_line(abstract[:MAX_SCANNED], MAX_SCANNED)
    if len(text) <= room or room < 2:
        return text if len(text) <= room else ""
    sentences = _SENTENCE_END.split(text)
    best = _rank(sentences, words)
    chosen: set[int] = set()
    for place in best:
        if len(_join_sentences(sentences, {*chosen, place})) <= room:
            chosen.add(place)
    if not chosen:
        return sentences[best[0]][: room - 1].rstrip() + CUT
    return _join_sentences(sentences, chosen)


def _rank(sentences: Sequence[str], words: str) -> list[int]:
    """Return the places of sentences, those first that hold most words of a query, and among equals the last."""
    asked = {word[:STEM] for word in _WORD.findall(words.casefold()[:MAX_QUERY])}
    scores = [len(asked & {word[:STEM] for word in _WORD.findall(sentence.casefold())}) for sentence in sentences]
    return sorted(range(len(sentences)), key=lambda place: (-scores[place], -place))


def _cuts_best(abstract: str, words: str, room: int) -> bool:
    """Return whether an abstract is too long for `room` characters, and its sentence that fits the query best, too."""
    text = make_line(abstract[:MAX_SCANNED], MAX_SCANNED)
    sentences = _SENTENCE_END.split(text)
    return len(text) > room and len(_join_sentences(sentences, {_rank(sentences, words)[0]})) > room


def _join_sentences(sentences: Sequence[str], chosen: set[int]) -> str:
    parts: list[str] = []
    last = -1
    for place in sorted(chosen):
        parts += [CUT] * (place > last + 1) + [sentences[place]]
        last = place
    return " ".join(parts + [CUT] * (last < len(sentences) - 1))


def write_images(
    query: ImageQuery, found: Sequence[FoundImage], problems: Sequence[str | None], most: int = 500, total: int = 5_000
) -> tuple[str, list[FoundImage]]:
    """Return the text of a result, and the figures that are in it; `problems` say why a picture cannot be shown.

    >>> found = [FoundImage("f1", "A film.", "A sign. J, 2020", pmid="7"), FoundImage("f2")]
    >>> print(write_images(ImageQuery("sign"), found, [None, "no picture"])[0])
    2 figures found.
    [1] PMID 7: A film.
    Source: A sign. J, 2020
    [2] no caption (not shown: no picture)
    """
    if not found:
        asked = [make_line(word, 40) for word in (query.modality, query.body_part) if word]
        among = f" ({', '.join(asked)})" if asked else ""
        return f"No figure found for {make_line(query.words, 80)!r}{among}. Try fewer or other words.", []
    items = [
        write_image(figure, number, problem, most)
        for number, (figure, problem) in enumerate(zip(found, problems, strict=True), 1)
    ]
    text, count = join_items("figure", items, total)
    return text, list(found[:count])


def write_image(found: FoundImage, number: int, problem: str | None, limit: int) -> str:
    """Return one figure in at most `limit` characters."""
    parts = [make_line(word, 30) for word in (found.pmid and f"PMID {found.pmid}", found.modality, found.body_part)]
    head = ", ".join(filter(None, parts))
    note = "" if problem is None else f" (not shown: {make_line(problem, 80)})"
    source, url = make_line(found.source, 120), make_line(found.url, 100)
    ends = note + (f"\nSource: {source}" if source else "") + (f"\n{url}" if url else "")
    start = f"[{number}] {head}: " if head else f"[{number}] "
    caption = make_line(found.caption, max(20, limit - len(start) - len(ends))) or "no caption"
    return f"{start}{caption}{ends}"[:limit]


def join_items(what: str, items: Sequence[str], total: int) -> tuple[str, int]:
    """Return the items that fit into `total` characters, each whole, below a line with their number; and how many
    fit."""
    head = f"{len(items)} {what}{'' if len(items) == 1 else 's'} found."
    left = "\n[{} more left out]"
    count, text = 0, head
    for item in items:
        after = left.format(len(items) - count - 1) if count + 1 < len(items) else ""
        if len(text) + 1 + len(item) + len(after) > total:
            break
        text, count = f"{text}\n{item}", count + 1
    if count < len(items):
        text += left.format(len(items) - count)
    return text[:total], count
