"""The adviser's search: how often a suitable tool is among the first 12, and how many searches a core makes a second.

Recall: of requests of the generator (split `--split`; held out: test) that words tell and no picture, with the words,
exclusions and formats that the environment would give. A tool is suitable from a grade of 80 on, computed from facts.
Speed: a catalogue of `--tools` tools whose facts and words are drawn anew from the shipped one; as many as that has, if
not given, which is what the bar is for. SQLite scores each tool that has a word of the query: 10,000 tools take 12 ms.
"""

import argparse
import json
import random
import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

from viewbox.envs.software_adviser.catalogue import read_catalogue
from viewbox.envs.software_adviser.generator import RequestGenerator
from viewbox.envs.software_adviser.request import SUITABLE
from viewbox.envs.software_adviser.retrieval import Retriever

TOP = 12
BARS = {"recall": 0.9, "searches_per_second": 1000}


def search_words(retriever, words, exclude):
    scores = retriever._score_words(words)
    order = [n for n in np.argsort(-scores, kind="stable") if scores[n] and retriever.tools[n].name not in exclude]
    return [retriever.tools[n].name for n in order[:TOP]]


def list_requests(generator, count):
    """Return the first requests with an answer, and the names of the tools that suit each."""
    seed, found = 0, []
    while len(found) < count:
        request = generator.make(seed)
        seed += 1
        if request.status == "answerable":
            suitable = {name for name, points in generator.rate(request).items() if points >= SUITABLE}
            found.append((request, suitable))
    return found


def measure_recall(retriever, requests, *, words_only):
    """Return the share of requests with a suitable tool among the first 12, and of those that have one in the first
    place."""
    places = []
    for request, suitable in requests:
        exclude = (*request.exclude, *request.withheld)
        if words_only:
            names = search_words(retriever, request.words, exclude)
        else:
            names = retriever.search(request.words, top_k=TOP, exclude=exclude, formats=request.known_formats)
        places.append(next((place for place, name in enumerate(names) if name in suitable), None))
    return {
        "recall": sum(place is not None for place in places) / len(places),
        "first": sum(place == 0 for place in places) / len(places),
    }


def make_catalogue(tools, count):
    """Tools with the facts of one tool, the features of words of several, and a name of their own."""
    rng = random.Random(0)
    words = [word for tool in tools for word in tool.features.rstrip(".").split()]
    made = []
    for number in range(count):
        facts = rng.choice(tools)
        other = rng.choice(tools)
        features = " ".join(rng.choices(words, k=16))
        made.append(
            facts.model_copy(
                update={
                    "name": f"{facts.name} {number}",
                    "modalities": other.modalities if rng.random() < 0.3 else facts.modalities,
                    "formats": other.formats if rng.random() < 0.5 else facts.formats,
                    "features": features,
                    "repository": f"https://github.com/owner{number}/name",
                    "sources": (),
                }
            )
        )
    return made


def measure_speed(tools, requests, count, searches):
    """Search a second of processor time, of queries that were not asked before."""
    big = Retriever(make_catalogue(tools, count))
    started = time.process_time()
    big.prepare()
    prepared = time.process_time() - started
    asked, new = requests[: len(requests) // 2], requests[len(requests) // 2 :]
    for request, _ in asked:
        big.search(request.words, top_k=TOP, formats=request.known_formats)
    rates = []
    for _ in range(3):
        started = time.process_time()
        for number in range(searches):
            request, _ = new[number % len(new)]
            big.search(request.words, top_k=TOP, exclude=request.exclude, formats=request.known_formats)
        rates.append(searches / (time.process_time() - started))
    per_second = [round(rate) for rate in rates]  # the first round meets words for the first time
    return {
        "tools": count,
        "prepare_seconds": round(prepared, 2),
        "searches_per_second": min(per_second),
        "rounds": per_second,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--split", choices=("train", "test"), default="test")
    parser.add_argument("--tools", type=int, default=len(read_catalogue()))
    parser.add_argument("--searches", type=int, default=1000)
    options = parser.parse_args()
    tools = read_catalogue()
    told = {"shares": {"answerable": 1.0}, "pictured": 0.0, "filed": 0.0}
    requests = list_requests(RequestGenerator(tools, split=options.split, **told), options.requests)
    retriever = Retriever(tools)
    ways = {"words": True, "search": False}
    recall = {way: measure_recall(retriever, requests, words_only=only) for way, only in ways.items()}
    with threadpool_limits(1):  # the bar is for one core
        speed = measure_speed(tools, requests, options.tools, options.searches)
    for way, figures in recall.items():
        print(f"{way:20} recall@{TOP} {figures['recall']:.3f}   first is suitable {figures['first']:.3f}")
    met = recall["search"]["recall"] >= BARS["recall"]
    met = met and speed["searches_per_second"] >= BARS["searches_per_second"]
    print(json.dumps({"recall": recall, "requests": options.requests, "split": options.split, **speed, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
