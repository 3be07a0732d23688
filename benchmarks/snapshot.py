"""Measures searches in a snapshot of the literature, and how a large one is made.

    python benchmarks/snapshot.py [RECORDS]

RECORDS is the size of the large one (default 100,000; a few minutes and 700 MB of disk). Words are drawn with
Zipf's law from a vocabulary of 100,000, an abstract has 150. A query is 2 to 5 words of a record's title, without the
60 most frequent words of the vocabulary, which stand for "the" and "of". The last line is a JSON object.

(a) 300 records with 60 figures, asked on one core. Bar: 2,000 queries a second, and the same answers in two processes.
(b) RECORDS records: seconds and peak memory of making the file; milliseconds of a query in a process that asks for the
    first time. Bar: a median below 20 ms of the processor, and at most 400 MB. `frequent` are queries of the 240 next
    frequent words.
"""

import hashlib
import io
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from viewbox.tools.search.records import Article, ArticleQuery, FoundImage, ImageQuery
from viewbox.tools.search.snapshot import SnapshotSource

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from examples.snapshot import SnapshotWriter

PER_SECOND, MEDIAN_MS, MEMORY_MB = 2_000, 20.0, 400  # the bars
SMALL, FIGURES, QUERIES = 300, 60, 1_000
STOPPED, FREQUENT = 60, 300  # ranks of words: as frequent as "the"; still very frequent


class Language:
    """Words that no language has, with the frequencies of one."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        syllables = [first + last for first in "bcdfglmnprstv" for last in ("a", "e", "i", "o", "u", "an", "er", "ol")]
        found = {"".join(rng.choice(syllables, rng.integers(2, 5))) for _ in range(100_000)}
        self.words = np.array(sorted(found), dtype=object)
        rng.shuffle(self.words)
        self.shares = np.cumsum(1 / np.arange(1, len(self.words) + 1) ** 1.05)
        self.shares /= self.shares[-1]
        self.frequent = frozenset(self.words[:STOPPED])

    def draw_text(self, rng: np.random.Generator, length: int) -> str:
        places = np.searchsorted(self.shares, rng.random(length))
        return " ".join(self.words[np.minimum(places, len(self.words) - 1)])

    def write_articles(self, count: int, seed: int = 1) -> Iterator[Article]:
        rng = np.random.default_rng(seed)
        for number in range(count):
            yield Article(
                pmid=str(10_000_000 + number),
                title=self.draw_text(rng, 12),
                journal="Journal",
                year=int(rng.integers(1970, 2026)),
                abstract=self.draw_text(rng, 150),
                types=("Review",) if number % 10 == 0 else ("Journal Article",),
                mesh=tuple(self.draw_text(rng, 2) for _ in range(5)),
            )

    def write_queries(self, count: int, articles: int) -> list[str]:
        """Queries of words that stand together in a title of `write_articles`."""
        rng = np.random.default_rng(2)
        found: list[str] = []
        for article in self.write_articles(min(articles, 3 * count)):
            words = [word for word in article.title.split() if word not in self.frequent]
            if len(words) >= 2 and len(found) < count:
                found.append(" ".join(words[: int(rng.integers(2, 6))]))
        return found

    def write_frequent_queries(self, count: int) -> list[str]:
        rng = np.random.default_rng(3)
        return [" ".join(rng.choice(self.words[STOPPED:FREQUENT], int(rng.integers(2, 6)))) for _ in range(count)]


def build(path: str, count: int) -> None:
    """Write a snapshot of `count` articles and `FIGURES` figures."""
    language = Language()
    with SnapshotWriter(path, note="drawn words", license="CC0-1.0", recorded="2025-01-01") as writer:
        for number, article in enumerate(language.write_articles(count)):
            writer.add_article(article)
            if number < FIGURES:
                file = io.BytesIO()
                Image.new("L", (64, 64), number).save(file, "PNG")
                found = FoundImage(f"f{number}", article.title, "Journal", pmid=article.pmid, modality="CT")
                writer.add_image(found, file.getvalue())


def digest(path: str, queries: list[str]) -> str:
    """Return a hash over the answers to all queries."""
    source, found = SnapshotSource(path), hashlib.sha256()
    for words in queries:
        found.update(repr(source.find_articles(ArticleQuery(words))).encode())
        found.update(repr(source.find_images(ImageQuery(words))).encode())
    return found.hexdigest()


def run_alone(*arguments: str) -> tuple[str, float]:
    """Return what this script prints in a process of its own, and the largest memory of all such processes in MB."""
    command = [sys.executable, __file__, *arguments]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return printed, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000


def time_queries(path: str, queries: list[str], search_type: str = "all") -> dict[str, float]:
    """Milliseconds of a query, by the clock and of the processor, and the articles found on average."""
    source, spent, worked, found = SnapshotSource(path), [], [], 0
    source.prepare()
    for words in queries:
        started, began = time.perf_counter(), time.process_time()
        found += len(source.find_articles(ArticleQuery(words, search_type)))  # type: ignore[arg-type]
        spent.append(1000 * (time.perf_counter() - started))
        worked.append(1000 * (time.process_time() - began))
    cuts = statistics.quantiles(spent, n=100)
    figures = {"median_ms": cuts[49], "p95_ms": cuts[94], "worst_ms": max(spent), "found": found / len(queries)}
    figures["processor_median_ms"] = statistics.median(worked)
    return {name: round(value, 3) for name, value in figures.items()}


def measure_small(folder: str) -> dict[str, object]:
    """Section (a)."""
    path = f"{folder}/small.sqlite"
    build(path, SMALL)
    queries = Language().write_queries(QUERIES, SMALL)
    expected = digest(path, queries)
    same = {run_alone("--digest", path)[0].strip() for _ in range(2)} == {expected}
    source, rates = SnapshotSource(path), []
    for _ in range(3):
        started = time.process_time()
        for words in queries:
            source.find_articles(ArticleQuery(words))
        rates.append(len(queries) / (time.process_time() - started))
    rate = statistics.median(rates)
    return {"queries": len(queries), "per_second": round(rate), "same": same, "met": same and rate >= PER_SECOND}


def measure_large(folder: str, count: int) -> dict[str, object]:
    """Section (b)."""
    path = f"{folder}/large.sqlite"
    started = time.perf_counter()
    memory = run_alone("--build", path, str(count))[1]
    seconds = time.perf_counter() - started
    language, size = Language(), Path(path).stat().st_size
    usual = language.write_queries(QUERIES, count)
    timed = {
        "usual": time_queries(path, usual),
        "review": time_queries(path, usual[:200], "review"),
        "frequent": time_queries(path, language.write_frequent_queries(200)),
    }
    met = timed["usual"]["processor_median_ms"] < MEDIAN_MS and memory <= MEMORY_MB
    build = {"records": count, "build_s": round(seconds, 1), "peak_mb": round(memory), "file_mb": round(size / 1e6)}
    return {**build, **timed, "met": met}


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--build"]:
        build(arguments[1], int(arguments[2]))
    elif arguments[:1] == ["--digest"]:
        print(digest(arguments[1], Language().write_queries(QUERIES, SMALL)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            found = {"small": measure_small(folder), "large": measure_large(folder, int((*arguments, 100_000)[0]))}
        print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
