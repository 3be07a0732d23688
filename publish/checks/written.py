"""The row about publishing: `viewbox publish` writes the package of an environment, by the code that publishes it.

Writing it imports the author's code, so that a process with limits does it.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...utils.files import read_regular
from .process import Limits, run_limited
from .rows import Failed, check
from .trial import Trial

WRITE = """
import json, sys
from pathlib import Path
from viewbox.errors import ViewboxError
from viewbox.publish import publish

given = json.loads(sys.argv[1])
try:
    publish(given["environment"], given["out"], settings=given["settings"], check=lambda folder: [])
except ViewboxError as error:
    Path(given["problem"]).write_text(str(error), encoding="utf-8")
    sys.exit(2)
"""


def write_published(
    environment: str, settings: Mapping[str, Any], folder: Path, *, limits: Limits, home: str | None = None
) -> Path:
    """Write the package that `viewbox publish` would write, in a process with limits; returns its folder.

    Args:
        environment: as `publish` takes it.
        settings: of the environment.
        folder: where the package and the home of the process lie.
        limits: of the process.
        home: HOME of the author's code; default: an empty one.

    Raises:
        Failed: it cannot be written.
    """
    out, problem = folder / "published", folder / "problem.txt"
    given = {"environment": environment, "settings": dict(settings), "out": str(out), "problem": str(problem)}
    outcome = run_limited(
        [sys.executable, "-P", "-c", WRITE, json.dumps(given)],
        folder=Path.cwd(),
        home=folder / "home",
        limits=limits,
        variables={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **({"HOME": home} if home else {})},
    )
    if out.is_dir():
        return out
    try:
        raise Failed(read_regular(problem, limit=2**20, inside=folder).decode("utf-8", "replace"))
    except OSError:  # it ended without a word
        raise Failed(outcome.explain()) from None


@check(
    "publishable",
    needs=("files", "gold answer", "no network at import", "writes nothing outside", "prints no secrets"),
    mend="it says what a published package cannot hold; docs/publishing.md lists what travels",
    applies=lambda trial: not trial.project.is_published,
)
def check_publishable(trial: Trial) -> str:
    """`viewbox publish` writes the package."""
    folder = trial.folder / "homes" / "publishable"
    folder.mkdir(parents=True)
    out = write_published(str(trial.project.folder), {}, folder, limits=trial.limits)
    files = [path for path in out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    return f"`viewbox publish` writes it: {len(files)} files, {size / 1000:,.0f} kB"
