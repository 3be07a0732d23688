"""Rows about what a package says of itself, read from its files alone: nothing of it runs."""

import re

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.version import InvalidVersion, Version

from ...errors import ConfigError
from ..author_files import check_file
from .project import ENTRY_POINTS
from .rows import Failed, check, shorten
from .trial import Trial

NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"


@check(
    "metadata",
    mend="write them into the section [project] of pyproject.toml; `viewbox new NAME` shows one that is complete",
)
def check_metadata(trial: Trial) -> str:
    """Name, version, description, README and environment are stated."""
    table, problems = trial.project.table, []
    if not re.fullmatch(NAME, trial.project.name):
        problems.append(f"name = {trial.project.name!r}; allowed: letters, digits, '-', '_' and '.'")
    if "version" in table.get("dynamic", ()):
        problems.append("version is dynamic; allowed: a version that is written down")
    else:
        try:
            Version(str(table.get("version", "")))
        except InvalidVersion:
            problems.append(f"version = {table.get('version')!r}; allowed: such as 0.1.0")
    if not str(table.get("description", "")).strip():
        problems.append("there is no description")
    readme = table.get("readme", "")
    if not isinstance(readme, str) or not (trial.project.folder / readme).is_file():
        problems.append(f"readme = {readme!r}: is not a file of the folder")
    if not re.fullmatch(r"\w+(\.\w+)*:\w+(\.\w+)*", trial.project.environment):
        problems.append(f'[project.entry-points."{ENTRY_POINTS}"] does not hold one entry NAME = "module:Class"')
    elif not trial.project.list_files():
        problems.append(f"{trial.project.environment}: the folder has no module {trial.project.module}")
    if problems:
        raise Failed(shorten(problems, 6))
    return f"{trial.project.name} {table['version']}, the environment is {trial.project.environment}"


@check(
    "license and tags",
    mend='in [project]: license = "Apache-2.0" (or another SPDX name: your choice), and keywords = ["...", ...]',
)
def check_license(trial: Trial) -> str:
    """A license by its SPDX name, and tags by which a hub finds the package."""
    table = trial.project.table
    given = table.get("license")
    if given is None and trial.project.is_published:  # `viewbox publish` sends it to no hub
        return "no license is stated: --license does; " + ", ".join(table.get("keywords", ()))
    if not isinstance(given, str) or not given.strip():
        raise Failed(f"license = {given!r}; allowed: an SPDX name")
    try:
        license = canonicalize_license_expression(given)
    except InvalidLicenseExpression as error:
        raise Failed(f"license = {given!r}: {error}") from error
    tags = table.get("tags") or table.get("keywords")
    if not isinstance(tags, list) or not tags or not all(isinstance(tag, str) and tag.strip() for tag in tags):
        raise Failed(f"keywords = {tags!r}; allowed: a list of words")
    return f"{license}; {', '.join(tags)}"


@check(
    "files",
    needs=("metadata",),
    mend="remove it from the package; read keys from environment variables, and replace a key that was written down",
)
def check_files(trial: Trial) -> str:
    """No file of the module, hidden ones too, is a link, too large, named like a secret, or holds a key."""
    files, problems = trial.project.list_files(hidden=True), []
    for path in files:
        try:
            check_file(trial.project.folder / path)
        except ConfigError as error:
            problems.append(str(error).replace(f"{trial.project.folder}/", ""))
    if problems:
        raise Failed(shorten(problems))
    return f"{len(files)} files; no links, no keys"
