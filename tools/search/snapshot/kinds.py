"""Which search types an article belongs to, by its publication types and its year."""

from ..records import Article, SearchType

RECENT_YEARS = 5  # "recent": of the year in which the snapshot was recorded and the four before it

_REVIEWS = frozenset({"review", "systematic review", "scoping review"})
_META_ANALYSES = frozenset({"meta-analysis", "network meta-analysis"})
_TRIALS = frozenset(
    {
        "adaptive clinical trial",
        "clinical trial",
        "clinical trial, phase i",
        "clinical trial, phase ii",
        "clinical trial, phase iii",
        "clinical trial, phase iv",
        "controlled clinical trial",
        "equivalence trial",
        "pragmatic clinical trial",
        "randomized controlled trial",
    }
)  # "Clinical Trial" and what MeSH's tree of publication types has below it
_KINDS: dict[SearchType, frozenset[str]] = {
    "review": _REVIEWS,
    "trial": _TRIALS,
    "meta_analysis": _META_ANALYSES,
    "guideline": frozenset({"guideline", "practice guideline"}),
    "case_report": frozenset({"case reports", "case report"}),
}


def list_kinds(article: Article, recorded_year: int) -> list[SearchType]:
    """The search types, other than "all", that find an article.

    Args:
        article: of a snapshot.
        recorded_year: of the snapshot: the clock does not count, or the answers would change with it.

    >>> list_kinds(Article("1", types=("Journal Article", "Review"), year=2023), 2025)
    ['review', 'recent']
    """
    types = {name.casefold() for name in article.types}
    kinds = [kind for kind, names in _KINDS.items() if types & names]
    if article.year is not None and article.year > recorded_year - RECENT_YEARS:
        kinds.append("recent")
    return kinds


def write_kind_token(kind: SearchType) -> str:
    """The word by which the index knows a search type: its first letter is in no word of a query.

    >>> write_kind_token("meta_analysis").isalnum()
    False
    """
    return f"\ue000{kind.replace('_', '')}"
