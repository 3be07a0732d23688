"""`--to prime`: the Environments Hub of Prime Intellect, by its own command: `prime env push`.

`prime` is the user's own command (`uv tool install prime`): its dependencies do not fit beside those of viewbox. It
finds the key (`prime login`, PRIME_API_KEY), builds the wheel, and sends wheel and source. viewbox reads the key only
to mask it in messages.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from ...errors import ConfigError
from ...utils.secrets import mask_message, remember
from ...utils.terminal import make_line
from .base import MAX_SHOWN, Hub, HubPlace, MissingError, Release

ATTEMPTS = 3  # of a command that a busy hub or a cut connection ended
WAIT = 1.0  # seconds before the second attempt, then twice as many
TIMEOUT = 900.0  # seconds of a command; an upload alone may take 300
COMMAND = "prime"
HOME = "https://app.primeintellect.ai/dashboard/environments"
SERVER = "https://api.primeintellect.ai"
# What `prime env push` leaves out of the source that it sends, without a word
LEFT_OUT = frozenset({"build", "dist", "outputs", "__pycache__"})
# Sentences of the command after which the same may succeed. A push can be repeated: the hub knows wheels by their hash
_BUSY = re.compile(
    r"HTTP (?:408|429|5\d\d)|'(?:408|429|5\d\d) |Request (?:failed|timed out)|Failed to (?:upload|download)"
    r"|Download failed|disconnected|onnection|timed out"
)
_MISSING = re.compile(r"HTTP 404")


class Prime(Hub):
    """An environment of one owner."""

    kinds = ("environment",)
    asks = True
    reads_front_matter = False

    def __init__(self, place: HubPlace) -> None:
        self.place = place
        remember(os.environ.get("PRIME_API_KEY"))  # a hub may repeat it in an error
        remember(_read_config().get("api_key"))

    def describe(self) -> str:
        server = _read_config().get("base_url")
        server = os.environ.get("PRIME_API_BASE_URL") or os.environ.get("PRIME_BASE_URL") or server or SERVER
        other = "" if server.rstrip("/") == SERVER else f", by the server {make_line(server, 200)}"
        return f"{HOME}/{self.place.repository} ({self.place.visibility}{other})"

    def list_versions(self) -> list[str]:
        try:
            said = self._run("status", self.place.repository, "--output", "json")
            visibility = str(dict(json.loads(said[said.index("{") :])).get("visibility", "")).upper()
        except MissingError:
            return []
        except ConfigError:
            raise
        except (ValueError, TypeError) as error:
            raise ConfigError("--to prime: `prime env status` gave no JSON; update the command", key="to") from error
        if visibility in ("PUBLIC", "PRIVATE"):
            self.place.check_visibility(f"--to prime: {self.place.repository}", visibility == "PUBLIC")
        lines = self._run("version", "list", self.place.repository).splitlines()
        return [words[0] for line in lines if (words := line.split()) and words[0][:1].isdigit()]

    def check(self, release: Release) -> None:
        for name in release.hashes:
            parts = name.split("/")
            if any(part.startswith(".") for part in parts) or LEFT_OUT & set(parts[:-1]):
                raise ConfigError(
                    f"--to prime: {name}: `prime env push` leaves out hidden files, and folders named "
                    f"{', '.join(sorted(LEFT_OUT))}; rename it",
                    key="to",
                )

    def push(self, release: Release) -> str:
        with tempfile.TemporaryDirectory(prefix="viewbox-prime-") as temporary:
            folder = Path(temporary) / release.module  # the command builds in it
            shutil.copytree(release.folder, folder)
            visibility = self.place.visibility.upper()
            self._run("push", "--path", str(folder), "--owner", self.place.owner, "--visibility", visibility)
        return f"{HOME}/{self.place.repository}"

    def fetch(self, release: Release, folder: Path) -> None:
        self._run("pull", f"{self.place.repository}@{release.version}", "--target", str(folder))
        shutil.rmtree(folder / ".prime", ignore_errors=True)  # a note of the command itself

    def install(self, release: Release, folder: Path, bin: Path) -> None:
        path = f"{bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        said = self._run("install", f"{self.place.repository}@{release.version}", "--with", "pip", PATH=path)
        if "Successfully installed" not in said:  # the status is 0 also if pip failed
            raise ConfigError(f"--to prime: `prime env install` failed: {make_line(said[-MAX_SHOWN:])}", key="to")

    def _run(self, *words: str, **variables: str) -> str:
        """Return what `prime env …` prints; a busy hub is asked again."""
        command = shutil.which(COMMAND)
        if command is None:
            raise ConfigError(
                "--to prime needs the command `prime`: uv tool install prime (or pipx install prime), then prime login",
                key="to",
            )
        quiet = {"PRIME_DISABLE_VERSION_CHECK": "1", "NO_COLOR": "1", "TERM": "dumb"}
        for attempt in range(ATTEMPTS):
            time.sleep(WAIT * 2 ** (attempt - 1) if attempt else 0)
            try:
                done = subprocess.run(
                    [command, "env", *words, "--plain"],
                    capture_output=True,
                    text=True,
                    errors="replace",
                    stdin=subprocess.DEVNULL,
                    timeout=TIMEOUT,
                    env={**os.environ, **quiet, **variables},
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                problem = f"`prime env {words[0]}` took more than {TIMEOUT:.0f} s"
                raise ConfigError(f"--to prime: {problem}", key="to") from error
            said = mask_message(done.stdout + done.stderr)
            if done.returncode == 0:
                return said
            if not _BUSY.search(said):
                break
        text = make_line(said.strip()[-MAX_SHOWN:])
        kind = MissingError if _MISSING.search(said) else ConfigError
        again = "; run the command again: a push can be repeated" if words[0] == "push" else ""
        raise kind(f"--to prime: `prime env {words[0]}` ended with {done.returncode}: {text}{again}", key="to")


def _read_config() -> dict[str, str]:
    folder, context = Path.home() / ".prime", os.environ.get("PRIME_CONTEXT")
    path = folder / "environments" / f"{context}.json" if context else folder / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return {key: value for key, value in values.items() if isinstance(value, str)}
    except (OSError, ValueError, AttributeError):
        return {}
