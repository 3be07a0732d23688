"""Records facts of repositories for the adviser's tool `repo_info_batch`, from clones on this machine.

    python benchmarks/record_repositories.py out.jsonl MouseLand/cellpose=clones/cellpose

Of each clone, bare or not, the newest commit is read: its day, the languages of its files by size, the license that its
file says, the Python it asks for and the packages it needs. Only facts are written, no sentence of a README.
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

LANGUAGES = {
    "C": "c", "C#": "cs", "C++": "cc cpp cxx hpp hxx txx", "CUDA": "cu cuh", "Fortran": "f f90", "Groovy": "groovy",
    "Java": "java", "JavaScript": "js jsx mjs", "Julia": "jl", "Kotlin": "kt", "MATLAB": "m", "Objective-C": "mm",
    "Python": "py pyx", "R": "r", "Rust": "rs", "Shell": "sh", "TypeScript": "ts tsx", "Vue": "vue",
}  # fmt: skip
BY_ENDING = {ending: name for name, endings in LANGUAGES.items() for ending in endings.split()}
LEAST_SHARE = 0.05  # of the bytes of code, from which on a language is named
VENDORED = re.compile(
    r"(?i)(?:^|/)(?:third[-_]?party|vendor|vendored|external|extern|node_modules|dist|lib|libs|deps)/"
)
GNU = re.compile(r"gnu (affero |lesser |library )?general public license version (\d(?:\.\d)?)")
GNU_NAMES = {None: "GPL", "affero ": "AGPL", "lesser ": "LGPL", "library ": "LGPL"}
PLAIN = {
    "Apache-2.0": "apache license version 2.0, january 2004",
    "MPL-2.0": "mozilla public license version 2.0",
    "BSD": "redistributions of source code must retain",
    "MIT": "the above copyright notice and this permission notice",
}
LONGEST = 1_900  # characters of a MIT or BSD license; a longer one has terms of its own
RESTRICTED = re.compile(r"non-?commercial|academic use|research (?:use|purposes) only")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def run_git(clone: Path, *arguments: str) -> str:
    """What a git command prints."""
    done = subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")


def read_file(clone: Path, name: str) -> str:
    """The text of a file of the newest commit; empty if there is none."""
    try:
        return run_git(clone, "show", f"HEAD:{name}")
    except subprocess.CalledProcessError:
        return ""


def list_languages(files: Iterable[tuple[int, str]]) -> list[str]:
    """The languages of the files, (size, path) each, the largest first."""
    sizes: Counter[str] = Counter()
    for size, path in files:
        language = BY_ENDING.get(path.rpartition(".")[2].lower())
        if language and not VENDORED.search(path):
            sizes[language] += size
    total = sum(sizes.values())
    return [name for name, size in sizes.most_common() if size >= LEAST_SHARE * total]


def find_license(clone: Path, names: Collection[str]) -> str:
    """The SPDX id of the license file in the root; empty unless the file is exactly one license that is known."""
    found: set[str] = set()
    for name in names:
        if re.fullmatch(r"(?i)(?:licen[cs]e|copying)(?:[.-][a-z0-9.-]*)?", name):
            found |= name_licenses(" ".join(read_file(clone, name).split()).casefold())
    return found.pop() if len(found) == 1 else ""


def name_licenses(text: str) -> set[str]:
    """The SPDX ids that a text holds, in lower case and with single spaces; "" stands for terms that are not known.

    >>> name_licenses("... the above copyright notice and this permission notice (including the next paragraph) ...")
    {'MIT'}
    """
    gnu = GNU.search(text[:400])  # their texts name each other further down
    if gnu:
        return {f"{GNU_NAMES[gnu[1]]}-{gnu[2] if '.' in gnu[2] else gnu[2] + '.0'}"}
    found = {spdx for spdx, words in PLAIN.items() if words in text}
    if "BSD" in found:
        found = found - {"BSD"} | {"BSD-3-Clause" if "endorse or promote" in text else "BSD-2-Clause"}
    short = not found & {"MIT", "BSD-3-Clause", "BSD-2-Clause"} or len(text) <= LONGEST
    return found if found and short and not RESTRICTED.search(text) else {""}


def read_python(clone: Path, names: Collection[str]) -> tuple[str, list[str]]:
    """(Python it asks for, packages it needs) as pyproject.toml or requirements.txt say."""
    python, needs = "", []
    if "pyproject.toml" in names:
        try:
            project = tomllib.loads(read_file(clone, "pyproject.toml")).get("project", {})
        except tomllib.TOMLDecodeError:
            project = {}
        python, needs = str(project.get("requires-python", "")), project.get("dependencies", [])
    if not needs and "requirements.txt" in names:
        needs = [line.strip() for line in read_file(clone, "requirements.txt").splitlines()]
    found = [match[0].lower() for one in needs if (match := NAME.match(str(one)))]
    return python, list(dict.fromkeys(found))


def record(repository: str, clone: Path) -> dict[str, object]:
    """The facts of a clone, as a line of the snapshot holds them."""
    tree = [line.split(None, 4) for line in run_git(clone, "ls-tree", "-r", "-l", "HEAD").splitlines()]
    files = [(int(size), path) for _, kind, _, size, path in tree if kind == "blob" and size.isdigit()]
    names = {path for _, path in files if "/" not in path}
    python, needs = read_python(clone, names)
    facts: dict[str, object] = {
        "repository": repository,
        "recorded": datetime.date.today().isoformat(),
        "license": find_license(clone, names),
        "languages": list_languages(files),
        "last_commit": run_git(clone, "log", "-1", "--format=%cs").strip(),
        "python": python,
        "needs": needs[:12],
    }
    return {key: value for key, value in facts.items() if value}


def main() -> None:
    """Reads the command line and writes the snapshot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the snapshot, a JSONL file")
    parser.add_argument("clones", nargs="+", help="owner/name=FOLDER")
    options = parser.parse_args()
    lines: list[str] = []
    for item in options.clones:
        repository, _, clone = item.partition("=")
        try:
            lines.append(json.dumps(record(repository, Path(clone))))
        except (subprocess.CalledProcessError, ValueError) as error:
            print(f"{item}: left out: {error}", file=sys.stderr)
    options.out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(lines)} of {len(options.clones)} repositories recorded in {options.out}")


if __name__ == "__main__":
    main()
