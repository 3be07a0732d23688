"""Measures how fast live search may ask, and how fast it asks, by the time that the service takes for an answer.

    python benchmarks/live_search.py [SECONDS]

A local server with TLS stands for PubMed and notes when each request arrives. Its answers take 0, 0.3 and 1 s; searches
run for SECONDS each (default 10), at 3 requests a second (without a key) and at 10 (with one). A place is held until
the answer is there and for one more second, so the rate is `limit` / (1 s + the time of an answer) at best: that is
the price of a limit that holds at the server. Bar: never more than `limit` arrivals in any second. The last line is a
JSON object.
"""

import asyncio
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.literature_server import make_source, serve_literature
from viewbox.tools.search.records import ArticleQuery


async def search_for(source, seconds):
    """Distinct searches, as many as get a turn; 20 at a time."""

    async def search(worker):
        for number in range(10**6):
            await source.search_articles(ArticleQuery(f"words {worker} {number}"))

    tasks = [asyncio.create_task(search(worker)) for worker in range(20)]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def measure(limit, delay, seconds):
    """Arrivals at the server."""
    with tempfile.TemporaryDirectory() as folder, serve_literature(Path(folder)) as (literature, setup):
        literature.delay = delay
        asyncio.run(search_for(make_source(replace(setup, rate=limit)), seconds))
        times = [arrived for arrived, _, _ in literature.arrivals]
        rate = (len(times) - limit) / (times[-1] - times[0])  # the first of them came together
        return {
            "limit": limit,
            "answer_s": delay,
            "per_second": round(rate, 2),
            "densest_second": literature.find_densest(1.0),
        }


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    rows = []
    for limit in (3, 10):
        for delay in (0.0, 0.3, 1.0):
            rows.append(measure(limit, delay, seconds))
            print(rows[-1], flush=True)
    met = all(row["densest_second"] <= row["limit"] for row in rows)
    print(json.dumps({"rows": rows, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
