"""Precision, recall and F1 of the words that token_f1 takes as denied, on sentences marked by hand.

    python benchmarks/negation_scope.py [--errors] [--negex FILE]       (the last line is one JSON object)

The sentences are in tests/attacks/rewards/negation_scope.txt: they were written before the rules, and a hash holds
half of them out. The rules were tuned on the other half only; the bar is for the half held out. `--errors` prints the
sentences of the tuning half that are read wrong. `--negex` also reads the public test set of NegEx (Chapman et al.
2001; Annotations-1-120.txt of https://github.com/chapmanbe/negex), which says which of 2,376 concepts are denied.
"""

import argparse
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from viewbox.rewards.negation import MARK, TOKEN, split_words
from viewbox.utils.values import fold_text

BAR = 0.9  # F1 on the sentences held out
SENTENCES = Path(__file__).parents[1] / "tests" / "attacks" / "rewards" / "negation_scope.txt"
_PART = re.compile(r"\[(?P<denied>[^\]]*)\]|<(?P<cue>[^>]*)>|(?P<other>[^\[<]+)")
_WORD = re.compile(TOKEN)


class MarkedSentence(NamedTuple):
    """A sentence, its words in order, and what each is: denied, affirmed, or (None) not counted."""

    text: str
    words: list[str]
    denied: list[bool | None]

    @property
    def held_out(self) -> bool:
        return hashlib.sha256(self.text.encode()).digest()[0] % 2 == 1


class Figures(NamedTuple):
    """Precision, recall and F1 of what is denied."""

    precision: float
    recall: float
    f1: float


def read_sentences(path: Path = SENTENCES) -> list[MarkedSentence]:
    """Return the sentences of a file; `[ ]` holds denied words, `< >` words that are not counted."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [parse_sentence(line) for line in lines]


def parse_sentence(marked: str) -> MarkedSentence:
    words: list[str] = []
    denied: list[bool | None] = []
    for part in _PART.finditer(marked):
        found = _WORD.findall(fold_text(part[0].replace("w/o", "without")))
        words += found
        denied += [None if part["cue"] is not None else part["denied"] is not None] * len(found)
    return MarkedSentence(re.sub(r"[\[\]<>]", "", marked), words, denied)


def find_denied(sentence: MarkedSentence) -> list[bool]:
    """Return whether each word of a sentence is read as denied."""
    given = split_words(sentence.text)[0]
    assert len(given) >= len(sentence.words), (sentence.text, given)
    return [word.startswith(MARK) for word in given]


def count_errors(sentence: MarkedSentence) -> tuple[int, int, int]:
    """True positives, false positives and false negatives among the words that are counted."""
    both = zip(sentence.denied, find_denied(sentence), strict=False)
    pairs = [(marked, found) for marked, found in both if marked is not None]
    return (
        sum(marked and found for marked, found in pairs),
        sum(found and not marked for marked, found in pairs),
        sum(marked and not found for marked, found in pairs),
    )


def compute_figures(counts: Iterable[tuple[int, int, int]]) -> Figures:
    right, extra, missed = (sum(column) for column in zip(*counts, strict=True))
    return Figures(right / (right + extra), right / (right + missed), 2 * right / (2 * right + extra + missed))


def compute_negex_figures(path: Path) -> Figures:
    """Return the figures on NegEx's test set: number, concept, sentence with the concept in capitals, Negated or
    Affirmed."""
    counts = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
        _, concept, sentence, truth = line.split("\t")[:4]
        words = split_words(sentence.replace(concept.strip().upper(), " theconcept "))[0]
        found, marked = f"{MARK}theconcept" in words, "negated" in truth.lower()
        counts.append((marked and found, found and not marked, marked and not found))
    return compute_figures(counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--errors", action="store_true")
    parser.add_argument("--negex", type=Path)
    args = parser.parse_args()
    sentences = read_sentences()
    halves = {
        "tuned on": [sentence for sentence in sentences if not sentence.held_out],
        "held out": [sentence for sentence in sentences if sentence.held_out],
    }
    figures = {name: compute_figures(map(count_errors, half)) for name, half in halves.items()}
    if args.negex:
        figures["negex"] = compute_negex_figures(args.negex)
    print(f"{'':<12}{'sentences':>10}{'precision':>11}{'recall':>9}{'F1':>8}")
    for name, (precision, recall, f1) in figures.items():
        print(f"{name:<12}{len(halves.get(name, ())) or '':>10}{precision:>11.3f}{recall:>9.3f}{f1:>8.3f}")
    for sentence in halves["tuned on"] if args.errors else ():
        if any(count_errors(sentence)[1:]):
            print(f"{sentence.text}\n    {' '.join(split_words(sentence.text)[0])}")
    f1 = round(figures["held out"].f1, 3)
    print(json.dumps({**{name: round(value.f1, 3) for name, value in figures.items()}, "passed": f1 >= BAR}))


if __name__ == "__main__":
    main()
