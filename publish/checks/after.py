"""Rows about a second play of a package, and what is done with it: it is published, and its README's commands run."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from ...utils.files import read_regular
from ..author_files import MAX_FILE
from ..templates import CARD
from .before import list_missing_programs
from .inside import REPEAT, compare_plays
from .process import run_limited
from .rows import Failed, check, shorten
from .trial import CANARY, KEYS, Trial, make_path

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
FENCE = re.compile(r"^```(?:bash|sh|shell|console)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Programs that install, fetch or send, which a check does not do
LEFT_OUT = ("pip", "uv", "conda", "git", "source", "hf", "prime", "docker", "make")
OWN = ("new", "check", "publish", "train", "rollout")  # commands of viewbox that check, publish, or need a model
PLACEHOLDER = re.compile(r"(?<![\w$./-])[A-Z][A-Z_]{2,}(?![\w=])|<[a-z][\w -]*>|\.\.\.")
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


@check(
    "prints no secrets",
    needs=("dependencies",),
    mend="never print the environment or a variable that holds a key",
)
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


@check(
    "README",
    needs=UNGUARDED,
    mend="correct the command, or the package; what nobody should run is shown in a block without `bash`",
)
def check_readme(trial: Trial) -> str:
    """Every command in a block of shell commands ends with status 0."""
    assert trial.site is not None
    file = trial.project.folder / str(trial.project.table["readme"])
    text = read_regular(file, limit=MAX_FILE, inside=trial.project.folder).decode("utf-8", "replace")
    if trial.project.is_published:
        text = text.rpartition(CARD)[2]  # an author's own commands are for the author's folder
    missing = list_missing_programs(trial)
    found = [(command, explain_left_out(command, missing)) for command in list_commands(text)]
    run = [command for command, reason in found if reason is None]
    left = [f"`{command}` ({reason})" for command, reason in found if reason is not None]
    if not found:
        own = " of its own: the author's are for the author's folder" if trial.project.is_published else ""
        return f"shows no commands in a `bash` block{own}"
    folder = trial.folder / "readme-copy"
    shutil.copytree(trial.project.folder, folder, symlinks=True)
    limits = replace(trial.limits, seconds=trial.limits.seconds / max(1, len(run)))
    home, variables = trial.make_home("README"), make_path(trial.site)
    for command in run:
        outcome = run_limited(["bash", "-c", command], folder=folder, home=home, limits=limits, variables=variables)
        if outcome.status != 0:
            raise Failed(f"`{command}` {outcome.explain()}")
    return f"{len(run)} commands run" + (f"; not run: {shorten(left, 10)}" if left else "")


def list_commands(text: str) -> Iterator[str]:
    r"""List the commands in the shell blocks of a page; a line that ends with `\` goes on.

    >>> list(list_commands("```bash\npytest   # the tests\n$ ls \\\n  -l\n```\n```\nnot this\n```"))
    ['pytest', 'ls -l']
    """
    for block in FENCE.findall(text):
        for line in re.sub(r"\s*\\\n\s*", " ", block).splitlines():
            command = re.sub(r"(^|\s)#.*", "", line).strip().removeprefix("$ ").strip()
            if command:
                yield command


def explain_left_out(command: str, missing: Collection[str] = ()) -> str | None:
    """Say why a command is not run, or None if it is; `missing` are the programs of extras that are not installed here.

    >>> explain_left_out("python -m demo") is None
    True
    >>> explain_left_out("vf-eval demo --model MODEL")
    'MODEL stands for something'
    >>> explain_left_out("python -m pytest -q", {"pytest"})
    'pytest is not installed here'
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    program = Path(words[0]).name if words else ""
    if program in LEFT_OUT or words[:3] in (["python", "-m", "pip"], ["python", "-m", "venv"]):
        return "installs, fetches or sends"
    if program == "viewbox" and words[1:2] and words[1] in OWN:
        return "checks, publishes, or needs a model"
    if (needed := words[2] if words[:2] == ["python", "-m"] and words[2:] else program) in missing:
        return f"{needed} is not installed here"
    found = PLACEHOLDER.search(command)
    return f"{found.group().strip()} stands for something" if found else None
