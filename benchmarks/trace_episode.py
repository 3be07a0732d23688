"""Counts the files, functions and calls of viewbox that an episode of one zoom and one answer runs through.

    python benchmarks/trace_episode.py

These are the files that a reader of the code follows. Imports do not count, and caches are full, because another
episode is played first. The last line is one JSON object; the status is 1 if a bar is missed.
"""

import json
import sys
import threading
from collections import Counter
from pathlib import Path

import viewbox

ROOT = Path(viewbox.__file__).resolve().parent
MAX_FILES, MAX_CALLS = 36, 860  # the bars


def count_calls() -> Counter[tuple[str, str]]:
    """Call by (file, function) while one episode is played, in its own thread and in the threads it starts."""
    calls: Counter[tuple[str, str]] = Counter()

    def record(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and not {"benchmarks", ".venv"} & set(path.parts):
            calls[str(path.relative_to(ROOT)), frame.f_code.co_name] += 1

    env = viewbox.make("digits")
    for number in (0, 1):  # the first episode fills the caches
        task = env.tasks[number]
        policy = viewbox.ScriptedPolicy([*env.oracle(task), json.dumps(env.gold_answer(task))])
        if number:
            threading.setprofile(record)
            sys.setprofile(record)
        try:
            episode = env.play(task, policy)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        assert episode.end_reason == "answered"
    return calls


def main() -> int:
    """Print the calls of each file, then the report."""
    calls = count_calls()
    files: Counter[str] = Counter()
    for (path, _), count in calls.items():
        files[path] += count
    for path, count in sorted(files.items()):
        print(f"{count:5}  {path}")
    passed = len(files) <= MAX_FILES and calls.total() <= MAX_CALLS
    report = {"files": len(files), "functions": len(calls), "calls": calls.total(), "passed": passed}
    print(json.dumps(report | {"max_files": MAX_FILES, "max_calls": MAX_CALLS}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
