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
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz import worker

AREAS = {name: f"tests.fuzz.{name}" for name in ("replies", "answers", "images", "runs", "configs", "servers")}
HANG = 120.0  # seconds that a case may take by the clock
KEPT = 3  # cases that are kept of one kind of finding
EVERY = 30.0  # seconds between lines of progress


@dataclass
class Job:
    """A process that checks every `jobs`-th case, and what it has found."""

    process: Any
    trace: Path  # of a case that hangs: the stacks of its threads
    connection: Any
    shared: Any


@dataclass
class Fuzzer:
    """Cases of `areas` (name: module) in `jobs` processes, until `seconds` are over or each job had `cases` an area."""

    areas: dict[str, str]
    seed: int = 0
    jobs: int = 1
    seconds: float = 60.0
    cases: int = 0
    folder: Path = Path("build/fuzz")
    hang: float = HANG
    findings: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # (area, what): files of cases
    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        """Check cases; returns the figures of the last line."""
        started = shown = time.monotonic()
        jobs = [self._start(number) for number in range(self.jobs)]
        try:
            while any(job.process.is_alive() for job in jobs) and time.monotonic() - started < self.seconds:
                time.sleep(0.1)
                for number, job in enumerate(jobs):
                    self._receive(job)
                    if self._has_broken(job):
                        jobs[number] = self._start(number, job.shared)
                if time.monotonic() - shown > EVERY:
                    shown = time.monotonic()
                    print(f"{shown - started:.0f} s: {self._describe(jobs)}", flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        finally:
            for job in jobs:
                self._receive(job)
                job.process.kill()
                job.process.join()
                job.trace.unlink(missing_ok=True)
        return self._summarize(jobs, time.monotonic() - started)

    def _start(self, number: int, shared: Any = None) -> Job:
        context = multiprocessing.get_context("spawn")
        if shared is None:
            shared = context.RawArray("d", 4 * len(self.areas) + 2)
            for area in range(len(self.areas)):
                shared[4 * area], shared[4 * area + 3] = number, -1
        connection, other = context.Pipe(duplex=False)
        trace = Path(tempfile.gettempdir()) / f"viewbox-fuzz-{os.getpid()}-{number}.stacks"
        arguments = (other, self.areas, self.seed, self.jobs, shared, self.cases, self.hang, trace)
        process = context.Process(target=worker.work, args=arguments)
        process.start()
        other.close()
        return Job(process, trace, connection, shared)

    def _receive(self, job: Job) -> None:
        try:
            while job.connection.poll():
                self._keep(*job.connection.recv())
        except (EOFError, OSError):
            return

    def _has_broken(self, job: Job) -> bool:
        """Whether the process hung or died in a case, which is then kept; its successor goes on with the next."""
        area, began = int(job.shared[-2]), job.shared[-1]
        hangs = began and time.monotonic() - began > self.hang
        if not hangs and (job.process.is_alive() or job.process.exitcode == 0):
            return False
        if not began:
            raise RuntimeError(f"a process ended outside a case, with status {job.process.exitcode}")
        job.process.kill()
        job.process.join()
        name, number = list(self.areas)[area], int(job.shared[4 * area])
        content = worker.Checker(name, self.areas[name]).make_case(self.seed, number)
        what = f"took more than {self.hang:.0f} s" if hangs else f"ended the process ({job.process.exitcode})"
        self._keep(name, number, content, what, job.trace.read_text())
        job.shared[4 * area], job.shared[-1] = number + self.jobs, 0.0
        job.shared[4 * area + 1] += self.hang if hangs else 0.0
        return True

    def _keep(self, area: str, number: int, content: bytes, what: str, trace: str) -> None:
        files = self.findings.setdefault((area, what), [])
        self.counts[area, what] = self.counts.get((area, what), 0) + 1
        if len(files) == KEPT:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{area}-{self.seed}-{number}.case"
        path.write_bytes(content)
        command = f"{Path(sys.executable).name} -m tests.fuzz --replay {path}"
        path.with_suffix(".txt").write_text(
            f"{area}, seed {self.seed}, case {number}: {what}\n{command}\n\n{trace}", "utf-8", "replace"
        )
        files.append(str(path))
        print(f"FOUND {area} {number}: {what}\n  {command}", flush=True)

    def _describe(self, jobs: list[Job]) -> str:
        figures = self._summarize(jobs, 0.0)
        parts = [f"{name} {count:,}" for name, count in figures["cases"].items()]
        slowest = max(figures["slowest"].items(), key=lambda item: item[1]["seconds"])
        return f"{', '.join(parts)}; findings {sum(self.counts.values())}; slowest {slowest[0]} {slowest[1]}"

    def _summarize(self, jobs: list[Job], seconds: float) -> dict[str, Any]:
        cases, slowest = {}, {}
        for area, name in enumerate(self.areas):
            numbers = [(int(job.shared[4 * area]) - index) // self.jobs for index, job in enumerate(jobs)]
            cases[name] = sum(numbers)
            worst = max(jobs, key=lambda job: job.shared[4 * area + 2]).shared
            slowest[name] = {"seconds": round(worst[4 * area + 2], 3), "case": int(worst[4 * area + 3])}
        findings = [
            {"area": area, "what": what, "cases": self.counts[area, what], "kept": files}
            for (area, what), files in self.findings.items()
        ]
        total = sum(cases.values())
        return {"seed": self.seed, "seconds": round(seconds, 1), "total": total, "cases": cases, "slowest": slowest,
                "findings": findings, "passed": not findings}  # fmt: skip


def replay(path: Path, areas: dict[str, str] = AREAS) -> int:
    """Check the bytes of one case again; prints what it did, and returns 1 if that was wrong."""
    name = path.name.partition("-")[0]
    if name not in areas:
        raise SystemExit(f"{path}: allowed: a file whose name begins with {', '.join(areas)}")
    checker = worker.Checker(name, areas[name])
    try:
        with worker.limit_memory():
            seconds = checker.check(path.read_bytes(), worker.Guard(False))
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
    names = list(AREAS) if given.area == "all" else given.area.split(",")
    unknown = [name for name in names if name not in AREAS]
    if unknown:
        parser.error(f"--area {given.area}: allowed: all, {', '.join(AREAS)}")
    areas = {name: AREAS[name] for name in names}
    figures = Fuzzer(areas, given.seed, given.jobs, 60 * given.minutes, given.cases, given.folder).run()
    print(json.dumps(figures))
    return 0 if figures["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
