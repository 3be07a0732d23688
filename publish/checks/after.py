"""Rows about a second play of a package, and what `viewbox publish` makes of it."""

import os
import sys
from pathlib import Path

from ...utils.files import read_regular
from . import before  # noqa: F401  (its rows come first)
from .inside import REPEAT, compare_plays
from .process import run_limited
from .rows import Failed, check, shorten
from .trial import CANARY, KEYS, Trial

WRITE = """
import sys
from pathlib import Path
from viewbox.errors import ViewboxError
from viewbox.publish import publish

folder, out, problem = sys.argv[1:]
try:
    publish(folder, out, check=lambda folder: [])
except ViewboxError as error:
    Path(problem).write_text(str(error), encoding="utf-8")
"""
UNGUARDED = ("gold answer", "no network at import", "writes nothing outside", "prints no secrets")


@check("same in another process", needs=("same by seed",), mend=REPEAT)
def check_processes(trial: Trial) -> str:
    """Two processes, which order sets and hash words differently, play the same."""
    first = trial.first.get("same by seed")["plays"]
    compare_plays(first, trial.second.get("plays"), "in another process")
    return f"{len(first)} tasks, played in two processes: equal messages, pixels and scores"


@check(
    "writes nothing outside",
    needs=("dependencies",),
    mend="write into `tempfile.mkdtemp()` or the user's cache folder (below HOME), never beside the code or elsewhere",
)
def check_writes(trial: Trial) -> str:
    """Importing and playing write into the home and temporary folder only."""
    for seen in (trial.first, trial.second):
        seen.refuse("write", "it writes")
    trial.second.require_end("plays")
    return "importing and episodes write at most into home and temporary folder"


@check("prints no secrets", needs=("dependencies",), mend="never print the environment or a variable that holds a key")
def check_secrets(trial: Trial) -> str:
    """Importing and playing print no value of a variable in which keys are kept."""
    output = trial.second.outcome.output
    if CANARY in output:
        line = next(line for line in output.splitlines() if CANARY in line)
        named = [key for key in KEYS if key in line]
        raise Failed(f"it prints the value of {shorten(named) or 'a variable that holds a key'}")
    trial.second.require_end("plays")
    return f"{len(KEYS)} variables that hold keys: none is printed"


@check(
    "publishable",
    needs=("files", *UNGUARDED),
    mend="it says what a published package cannot hold; docs/publishing.md lists what travels",
    applies=lambda trial: not trial.project.is_published,
)
def check_publishable(trial: Trial) -> str:
    """`viewbox publish` writes the package."""
    home = trial.make_home("publishable")
    out, problem = home / "published", home / "problem.txt"
    command: list[str | Path] = [sys.executable, "-P", "-c", WRITE, trial.project.folder, out, problem]
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    outcome = run_limited(command, folder=home, home=home, limits=trial.limits, variables=variables)
    if not out.is_dir():
        try:
            said = read_regular(problem, limit=2**20, inside=home).decode("utf-8", "replace")
        except OSError:  # it ended without a word
            said = outcome.explain()
        raise Failed(said)
    files = [path for path in out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    return f"`viewbox publish` writes it: {len(files)} files, {size / 1000:,.0f} kB"
