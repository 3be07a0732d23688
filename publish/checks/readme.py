"""The row about the README: the commands that it shows run, in a copy of the folder and the fresh environment."""

import re
import shlex
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...utils.files import read_regular
from ..author_files import MAX_FILE
from ..templates import CARD
from . import fresh
from .rows import Failed, check, shorten
from .trial import Trial

FENCE = re.compile(r"^```(?:bash|sh|shell|console)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Programs that install, fetch or send, which a check does not do; the fresh environment stands for an installation.
LEFT_OUT = ("pip", "uv", "conda", "git", "source", "hf", "prime", "docker", "make")
OWN = ("new", "check", "publish", "train", "rollout")  # commands of viewbox that check, publish, or need a model
PLACEHOLDER = re.compile(r"(?<![\w$./-])[A-Z][A-Z_]{2,}(?![\w=])|<[a-z][\w -]*>|\.\.\.")


@check(
    "README",
    needs=("gold answer", "no network at import", "writes nothing outside", "prints no secrets"),  # it is not guarded
    mend="correct the command, or the package; what nobody should run is shown in a block without `bash`",
)
def check_readme(trial: Trial) -> str:
    """Every command in a block of shell commands ends with status 0."""
    file = trial.project.folder / str(trial.project.table["readme"])
    text = read_regular(file, limit=MAX_FILE, inside=trial.project.folder).decode("utf-8", "replace")
    if trial.project.is_published:
        text = text.rpartition(CARD)[2]  # an author's own commands are for the author's folder
    commands = list(list_commands(text))
    missing = _list_missing(trial.project.table)
    run = [command for command in commands if explain_left_out(command, missing) is None]
    bin_folder = _make_environment(trial) if run else trial.folder
    folder = trial.folder / "readme-copy"
    shutil.copytree(trial.project.folder, folder, symlinks=True)
    whole = replace(trial.limits, seconds=trial.limits.seconds / max(1, len(run)))
    for command in run:
        outcome = replace(trial, limits=whole).run("README", ["bash", "-c", command], folder=folder, path=[bin_folder])
        if outcome.status != 0:
            raise Failed(f"`{command}` {outcome.explain()}")
    left = ((command, explain_left_out(command, missing)) for command in commands)
    others = [f"`{command}` ({reason})" for command, reason in left if reason is not None]
    if not commands:
        return "shows no commands in a `bash` block"
    return f"{len(run)} commands run" + (f"; not run: {shorten(others, 10)}" if others else "")


def list_commands(text: str) -> Iterator[str]:
    r"""The commands in the shell blocks of a page; a line that ends with `\` goes on.

    >>> list(list_commands("```bash\npytest   # the tests\n$ ls \\\n  -l\n```\n```\nnot this\n```"))
    ['pytest', 'ls -l']
    """
    for block in FENCE.findall(text):
        for line in re.sub(r"\s*\\\n\s*", " ", block).splitlines():
            command = re.sub(r"(^|\s)#.*", "", line).strip().removeprefix("$ ").strip()
            if command:
                yield command


def explain_left_out(command: str, missing: Collection[str] = ()) -> str | None:
    """Why a command is not run, or None if it is; `missing` are the programs of extras that are not installed here.

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


def _list_optional(table: Mapping[str, Any]) -> list[str]:
    return [line for lines in table.get("optional-dependencies", {}).values() for line in lines]


def _list_missing(table: Mapping[str, Any]) -> set[str]:
    names = {fresh.normalize(re.split(r"[^\w.-]", line.strip())[0]) for line in _list_optional(table)}
    return {name for name in names if not fresh.find_installed([name])}


def _make_environment(trial: Trial) -> Path:
    """An environment with the extras of the package, as far as they are installed here: the folder of its programs."""
    assert trial.wheel is not None
    table = trial.project.table
    found = [*fresh.find_requirements(table.get("dependencies", ())), *fresh.find_installed(_list_optional(table))]
    return fresh.make_environment(trial.folder / "with-extras", trial.wheel, found).parent
