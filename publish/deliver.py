"""Sends a release: a person sees every file and agrees, the hub takes it, and what the hub gives back is tried."""

import re
import subprocess
import tempfile
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ..errors import ConfigError
from .hubs import Hub, open_hub
from .hubs.hf import OF_THE_HUB
from .release import Kind, Release, choose_version, compare_files, describe_release

# Imports the package as verifiers does, in the environment that it was installed into
OPEN = """
import importlib, sys

module, name = sys.argv[1:]
import verifiers.v1 as vf

env_class, package = vf.environment_class(name), importlib.import_module(module)
assert env_class is package.ViewboxEnv, f"verifiers resolves {name!r} to {env_class}"
from viewbox.integrations.verifiers import ViewboxTasksetConfig

taskset = getattr(package, package.__all__[0])(ViewboxTasksetConfig(id=name))
data = next(iter(taskset)).data
data.env().reset(data.task(), seed=0)
"""
MAX_LISTED = 5  # files that a message names
VERSION = r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?"
# Called with the lines that describe a release; False: nothing is sent.
Confirm = Callable[[list[str]], bool]


class Target(TypedDict, total=False):
    """Where a release goes, and how.

    Args:
        to: where to: dir, a folder; prime, the Environments Hub of Prime Intellect; hf, the Hugging Face hub. Default:
            dir.
        id: name of the package, by default viewbox-NAME; on a hub OWNER/NAME.
        version: version. Default: that of the folder, or 0.1.0.
        bump: raise this part of the latest version there: patch, minor or major.
        license: license (SPDX). Default: what the author's project states; for a model, its base model's.
        public: let everybody read it on the hub. Default: private.
        verify: download what was published, compare it, and install it into a fresh environment. Default: from a hub.
        dry_run: check everything and list the files, without writing or sending them.
        force: replace a package that was written to the folder before.
    """

    to: str
    id: str | None
    version: str | None
    bump: str | None
    license: str | None
    public: bool
    verify: bool | None
    dry_run: bool
    force: bool


@dataclass(frozen=True)
class PublishedPackage:
    """A package that was written or sent, or would be; `place` is its folder or address, `bytes` its size.

    `findings` says what was checked and done.
    """

    id: str
    version: str
    place: str
    files: int
    bytes: int
    findings: tuple[str, ...]


class Delivery:
    """The way of one release to its target; `confirm` is asked before anything leaves this machine."""

    def __init__(self, kind: Kind, out: str | Path | None, target: Target, confirm: Confirm | None) -> None:
        public, force = target.get("public", False), target.get("force", False)
        self.hub = open_hub(target.get("to", "dir"), kind, target.get("id"), out, public=public, force=force)
        self.target, self.confirm = target, confirm

    def choose_version(self, stated: str | None = None) -> str:
        """Choose the version of the release; `stated` is the one that its source has."""
        version, bump = self.target.get("version"), self.target.get("bump")
        version = version if version or bump else stated
        if version is not None and not re.fullmatch(VERSION, version):
            raise ConfigError(f"--version {version!r}; allowed: a release such as 0.1.0, 1.2, 1.0rc1 or 1.0.post1")
        held = self.hub.list_versions() if bump or self.hub.keeps_versions else ()
        return choose_version(version, bump, held, self.hub.describe())

    def send(self, release: Release, findings: Sequence[str]) -> PublishedPackage:
        """Send the release, or say what would be sent; `findings` is what was found before.

        Raises:
            ConfigError: nobody agreed, the hub refused, or what it gives back is not what was sent.
        """
        hub, dry_run, verify = self.hub, self.target.get("dry_run", False), self.target.get("verify")
        findings = list(findings)
        if not dry_run:
            hub.check(release)
            lines = describe_release(release, hub.describe())
            if hub.asks and (self.confirm is None or not self.confirm(lines)):
                raise ConfigError("nothing was sent", key="yes")
            address = hub.push(release)
            findings += [f"sent to {address}"] if hub.asks else []
            findings += verify_release(hub, release) if (hub.asks if verify is None else verify) else []
        if dry_run or not hub.asks:
            findings += describe_release(release, hub.describe(), every=hub.asks)
        place, files = hub.describe(), len(release.files)
        return PublishedPackage(release.name, release.version, place, files, release.size, tuple(findings))


def verify_release(hub: Hub, release: Release) -> list[str]:
    """Download a release, compare each file with what was sent, and install a package into a fresh environment.

    Raises:
        ConfigError: a file differs, or the installed package does not open its first task.
    """
    with tempfile.TemporaryDirectory(prefix="viewbox-verify-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary).resolve() / "downloaded"
        folder.mkdir()
        hub.fetch(release, folder)
        _refuse_changes(compare_files(release.hashes, folder, (*OF_THE_HUB, ".cache")), hub, "gives back")
        findings = [f"downloaded again: all {len(release.files)} files are those that were sent"]
        if release.kind == "environment":
            findings.append(install_and_open(hub, release, folder))
    return findings


def install_and_open(hub: Hub, release: Release, folder: Path) -> str:
    """Install a package from its hub into a fresh virtual environment, and open its first task there.

    `folder` is what was downloaded.
    """
    place = folder.parent / "environment"
    venv.EnvBuilder(with_pip=True, symlinks=True).create(place)
    bin = place / "bin"
    hub.install(release, folder, bin)
    python = str(bin / "python")
    query = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    libraries = Path(subprocess.run([python, "-c", query], capture_output=True, text=True, check=True).stdout.strip())
    inside = f"{release.module}/"
    own = {name.removeprefix(inside): value for name, value in release.hashes.items() if name.startswith(inside)}
    _refuse_changes(compare_files(own, libraries / release.module), hub, "installs")
    command = [python, "-I", "-c", OPEN, release.module, release.name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder.parent, check=False)
    if done.returncode:
        raise ConfigError(f"what was published does not work where it is installed:\n{done.stderr.strip()[-2000:]}")
    return "installed from there into a fresh environment: verifiers finds it and opens its first task"


def _refuse_changes(changes: list[str], hub: Hub, verb: str) -> None:
    if changes:
        more = f" and {len(changes) - MAX_LISTED} more" if len(changes) > MAX_LISTED else ""
        raise ConfigError(
            f"{hub.describe()} {verb} something else than was sent: {'; '.join(changes[:MAX_LISTED])}{more}. "
            "Do not use it; delete it there, and ask the hub",
            key="to",
        )
