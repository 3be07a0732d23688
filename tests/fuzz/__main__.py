"""Throws damaged input at viewbox for a while, and keeps what it should not have done.

python -m tests.fuzz --minutes 60 --seed 0 --area all --jobs 2
python -m tests.fuzz --replay build/fuzz/replies-0-123.case

A finding is an exception that viewbox does not raise on purpose, a case that takes too much time or memory, a score
outside [0, 1], a file that is not UTF-8, or anything written, started or called outside the folder of the case. The
bytes of each are kept. The last line is one JSON object; the exit status is 1 if anything was found.
"""

import argparse
import json
import multiprocessing
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz import worker

AREAS = ("replies", "answers", "images", "runs", "configs", "servers")
KEPT = 3  # cases that are kept of one kind of finding
CONTEXT = multiprocessing.get_context("spawn")


@dataclass
class Fuzzer:
    """Cases of `areas` in `jobs` processes, until `seconds` are over or each job had `cases` an area."""

    areas: tuple[str, ...] = AREAS
    seed: int = 0
    jobs: int = 1
    seconds: float = 60.0
    cases: int = 0
    folder: Path = Path("build/fuzz")
    counts: Counter[str] = field(default_factory=Counter)  # cases by area
    findings: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # (area, what): files of cases

    def run(self) -> dict[str, Any]:
        """Check cases; returns the figures of the last line."""
        with ThreadPoolExecutor(self.jobs) as threads:
            list(threads.map(self._run_job, range(self.jobs)))
        found = [{"area": area, "what": what, "kept": files} for (area, what), files in self.findings.items()]
        return {"seed": self.seed, "cases": dict(self.counts), "findings": found, "passed": not found}

    def _run_job(self, first: int) -> None:
        """Have every `jobs`-th case checked; the successor of a process that died goes on with the next case."""
        following, end = dict.fromkeys(self.areas, first), time.monotonic() + self.seconds
        while (left := end - time.monotonic()) > 0:
            receiving, sending = CONTEXT.Pipe(duplex=False)
            given = (sending, following, self.seed, self.jobs, left, self.cases)
            process = CONTEXT.Process(target=worker.work, args=given, daemon=True)
            process.start()
            sending.close()
            area, number = "", 0
            with suppress(EOFError):
                while True:
                    area, number, finding = receiving.recv()
                    if finding is None:
                        following[area] = number + self.jobs
                        self.counts[area] += 1
                    else:
                        self._keep(area, number, *finding)
            process.join()
            if process.exitcode == 0:
                return
            if not area:
                raise RuntimeError(f"a process ended before its first case, with status {process.exitcode}")
            what = f"ended the process ({process.exitcode}), or took more than {worker.HANG:.0f} s"
            self._keep(area, number, what, "its stacks were printed")

    def _keep(self, area: str, number: int, what: str, trace: str) -> None:
        files = self.findings.setdefault((area, what), [])
        if len(files) == KEPT:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{area}-{self.seed}-{number}.case"
        path.write_bytes(worker.Checker(area).make_case(self.seed, number))
        command = f"{Path(sys.executable).name} -m tests.fuzz --replay {path}"
        about = f"{area}, seed {self.seed}, case {number}: {what}\n{command}\n\n{trace}"
        path.with_suffix(".txt").write_text(about, "utf-8", "replace")
        files.append(str(path))
        print(f"FOUND {area} {number}: {what}\n  {command}", flush=True)


def replay(path: Path) -> int:
    """Check the bytes of one case again; prints what it did, and returns 1 if that was wrong."""
    name = path.name.partition("-")[0]
    if name not in AREAS:
        raise SystemExit(f"{path}: allowed: a file whose name begins with {', '.join(AREAS)}")
    worker.limit()
    try:
        seconds = worker.Checker(name).check(path.read_bytes(), worker.Guard())
    except (Exception, SystemExit) as error:
        what, trace = worker.describe(error)
        print(f"{trace}\nFOUND {what}")
        return 1
    print(f"nothing is wrong any more: {seconds:.3f} s of processor time")
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--cases", type=int, default=0, help="stop earlier: after this many cases of each area")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--area", default="all", help=f"all, or some of {', '.join(AREAS)} with commas between them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="where findings are kept")
    parser.add_argument("--replay", type=Path, help="check this case again and do nothing else")
    given = parser.parse_args(arguments)
    if given.replay:
        return replay(given.replay)
    areas = AREAS if given.area == "all" else tuple(given.area.split(","))
    if not set(areas) <= set(AREAS):
        parser.error(f"--area {given.area}: allowed: all, {', '.join(AREAS)}")
    figures = Fuzzer(areas, given.seed, given.jobs, 60 * given.minutes, given.cases, given.folder).run()
    print(json.dumps(figures))
    return 0 if figures["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
