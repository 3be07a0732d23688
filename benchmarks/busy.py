"""Times the quickstart on a machine with nothing else to do, and beside a busy loop on every core.

    python benchmarks/busy.py [key.path=value ...]        (settings of the quickstart, such as train.max_steps=20)

The runs take turns: quiet, busy, quiet. The last line is one JSON object; exit code 1 if the bar is missed.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

BAR = 2.5  # seconds beside the loops, as a multiple of the quiet ones


@contextmanager
def keep_busy() -> Iterator[None]:
    """Run a loop without an end on every core inside the block."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def time_quickstart(overrides: Sequence[str]) -> tuple[float, str]:
    """Return the seconds of the quickstart's whole process, and the threads that it took."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "viewbox.train", "quickstart", f"log.dir={folder}", *overrides]
        started = time.monotonic()
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    threads = next((line for line in said.splitlines() if line.startswith("threads: ")), "threads: not chosen")
    return round(time.monotonic() - started, 1), threads.removeprefix("threads: ").partition(";")[0]


def main() -> int:
    rows = []
    for kind in ("quiet", "busy", "quiet"):
        if kind == "busy":
            with keep_busy():
                seconds, threads = time_quickstart(sys.argv[1:])
        else:
            seconds, threads = time_quickstart(sys.argv[1:])
        rows.append({"kind": kind, "seconds": seconds, "threads": threads})
        print(rows[-1], flush=True)
    quiet = [row["seconds"] for row in rows if row["kind"] == "quiet"]
    ratio = round(rows[1]["seconds"] / (sum(quiet) / len(quiet)), 2)
    print(json.dumps({"rows": rows, "ratio": ratio, "bar": BAR, "met": ratio <= BAR}))
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
