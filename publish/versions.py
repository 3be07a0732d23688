"""Chooses the version of a release: never one that a hub has, and the next one by `--bump`."""

from collections.abc import Iterable, Sequence

from packaging.version import InvalidVersion, Version

from ..errors import ConfigError

BUMPS = ("patch", "minor", "major")
FIRST = "0.1.0"


def choose_version(version: str | None, bump: str | None, held: Sequence[str], where: str) -> str:
    """The version of the next release.

    Args:
        version: the version that was asked for.
        bump: "patch", "minor" or "major": the part of the latest held version that is raised.
        held: the versions that exist there; what is no version is passed over.
        where: the place, for messages.

    Raises:
        ConfigError: the version exists there, or both or an unknown part are given.

    >>> choose_version(None, "minor", ["0.1.0", "0.2.1"], "hub"), choose_version(None, None, [], "hub")
    ('0.3.0', '0.1.0')
    """
    if bump is not None and bump not in BUMPS:
        raise ConfigError(f"--bump {bump!r}; allowed: {', '.join(BUMPS)}", key="bump", given=bump, allowed=BUMPS)
    if bump is not None and version is not None:
        raise ConfigError(f"--bump {bump} and --version {version}; allowed: one of them", key="bump", given=bump)
    known = sorted(_read_versions(held))
    if bump is not None:
        return bump_version(known[-1], bump) if known else FIRST
    chosen = version or FIRST
    if Version(chosen) in known:
        following = bump_version(known[-1], "patch")
        raise ConfigError(
            f"--version {chosen}: {where} has it already; allowed: --version {following}, or --bump patch|minor|major",
            key="version",
            given=chosen,
            allowed=(following,),
        )
    return chosen


def bump_version(version: Version, part: str) -> str:
    """The release after a version, with one part raised.

    >>> [bump_version(Version("1.2.3rc1"), part) for part in BUMPS]
    ['1.2.4', '1.3.0', '2.0.0']
    """
    major, minor, patch = version.major, version.minor, version.micro
    if part == "major":
        return f"{major + 1}.0.0"
    return f"{major}.{minor + 1}.0" if part == "minor" else f"{major}.{minor}.{patch + 1}"


def _read_versions(texts: Iterable[str]) -> list[Version]:
    found = []
    for text in texts:
        try:
            found.append(Version(text))
        except InvalidVersion:
            continue
    return found
