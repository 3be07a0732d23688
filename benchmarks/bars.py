"""Runs every benchmark that has a bar in a short form, and fails if a bar is missed.

    python benchmarks/bars.py [--quick] [NAME ...]           (`make benchmarks`; CI runs the quick ones)

Of each, its last line is printed, which is one JSON object. A bar is missed if the script ends with another status than
0, if one of `met`, `passed` and `passes` is false in that object, at any depth, or if `missed` or `below_bar` lists
something. The bars of these forms are counts, shares, or ratios of processor time in one run, so that a busy machine
does not miss them. What is left out needs more, and says what.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
QUICK = {  # seconds
    "decode_operations": "",
    "guessing": "",
    "literature_without_search": "200",
    "negation_scope": "",
    "reply": "",
    "rescore": "10000 3",
    "scoring": "3",
    "trace_episode": "",
}
SHORT = QUICK | {  # a minute and more
    "adapters_kept": "--steps 6",
    "adviser_retrieval": "",
    "live_search": "2",
    "looks": "--tasks 20 --episodes 3000",
    "memory": "",
    "picture_cost": "",
    "rollouts": "1 --only a",
    "soak": "2000",
    "tools": "3",
    "transformers_serve": "16",
    "trl_loop": "1",
}
LEFT_OUT = {
    "adapters": "milliseconds of verifiers with its server: for a quiet machine",
    "busy": "keeps every core busy for ten minutes",
    "coverage": "all of its intervals are needed: ten minutes",
    "env_step": "milliseconds and memory of a step: for a quiet machine",
    "gpu_check": "needs a GPU",
    "gpu_families": "needs a GPU",
    "quickstart": "trains for ten minutes",
    "snapshot": "millions of articles: ten minutes and gigabytes",
    "specialists": "calls a second by the clock: for a quiet machine",
    "store": "episodes a second by the clock: for a quiet machine",
    "tasks": "seconds to a first task of a million rows: for a quiet machine",
    "train_step": "its ratio moves by a tenth with what else the machine does: for a quiet machine",
    "verl_loop": "needs verl, which has an environment of its own",
    "view": "needs a browser, and milliseconds by the clock",
    "views": "milliseconds of a call by the clock: for a quiet machine",
    "write_literature": "writes the shipped snapshot, whose size is its bar",
}


def find_missed(figures: Any, path: str = "") -> Iterator[str]:
    """Yield the keys of the bars that figures miss."""
    items = figures.items() if isinstance(figures, dict) else enumerate(figures) if isinstance(figures, list) else ()
    for key, value in items:
        name = f"{path}.{key}".lstrip(".")
        is_verdict = str(key).split("_")[-1] in ("met", "passed", "passes") and value is False
        if is_verdict or (key in ("missed", "below_bar") and value):
            yield name
        yield from find_missed(value, name)


def run(name: str, arguments: str) -> list[str]:
    """Run a benchmark, print its last line, and return what it misses."""
    command = [sys.executable, FOLDER / f"{name}.py", *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = (done.stdout.splitlines() or ["{}"])[-1]
    print(f"{name} {arguments}".strip(), line, sep=": ", flush=True)
    try:
        missed = [*find_missed(json.loads(line))]
    except ValueError:
        missed = []
    if done.returncode and not missed:
        print(done.stderr[-2000:], file=sys.stderr)
        missed = [f"exit status {done.returncode}"]
    return [f"{name}: {key}" for key in missed]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *SHORT], metavar="NAME", help=f"of {', '.join(SHORT)}")
    parser.add_argument("--quick", action="store_true", help="those that take seconds")
    options = parser.parse_args()
    names = options.names or (QUICK if options.quick else SHORT)
    missed = [key for name in names for key in run(name, SHORT[name])]
    print(json.dumps({"benchmarks": len(names), "missed": missed}))
    return len(missed) > 0


if __name__ == "__main__":
    sys.exit(main())
