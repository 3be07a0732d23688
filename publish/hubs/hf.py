"""`--to hf`: a repository on the Hugging Face hub, by its own client, `huggingface_hub`.

An environment is a **dataset** repository with the tags `rl-environment` and `verifiers`, as the hub's documentation of
dataset cards asks for: it is found by the filter for environments there. A Space would run it, which is what OpenEnv
pushes, and a model repository would be offered as weights. Each version is a git tag, so a release can be pinned.

The client finds the key (`hf auth login`, HF_TOKEN) and keeps it from other hosts. viewbox reads it only to mask it in
messages.
"""

import importlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...errors import ConfigError
from ...utils.importing import import_hub
from ...utils.secrets import mask_message, remember
from ...utils.terminal import make_line
from .base import MAX_SHOWN, Hub, HubPlace, MissingError, Release
from .directory import MANIFEST

Result = TypeVar("Result")
ATTEMPTS = 3  # of a request, beside those that the client makes itself
WAIT = 1.0  # seconds before the second attempt, then twice as many
BUSY = (408, 429, 500, 502, 503, 504)
OF_THE_HUB = (".gitattributes", MANIFEST)  # files that the hub, and `push`, add to those of a release
MAX_MANIFEST = 2**22  # bytes


class HuggingFace(Hub):
    """A repository of one owner: a dataset for an environment, a model for weights."""

    kinds = ("environment", "model")
    asks = True
    reads_front_matter = True

    def __init__(self, place: HubPlace) -> None:
        self.hub = import_hub("to hf")
        self.place, self.api = place, self.hub.HfApi()
        self.where = {"repo_id": place.repository, "repo_type": "dataset" if place.kind == "environment" else "model"}
        library = type(self.hub.get_session()).__module__.partition(".")[0]  # httpx or its successor
        self.network_errors = (importlib.import_module(library).TransportError,)
        remember(self.hub.get_token())

    def describe(self) -> str:
        return f"{self.address} ({self.place.visibility})"

    @property
    def address(self) -> str:
        folder = "datasets/" if self.where["repo_type"] == "dataset" else ""
        return f"{self.api.endpoint}/{folder}{self.place.repository}"

    def list_versions(self) -> list[str]:
        try:
            tags = self._ask(lambda: self.api.list_repo_refs(**self.where).tags)
        except MissingError:
            return []
        return [tag.name.removeprefix("v") for tag in tags]

    def check(self, release: Release) -> None:
        if self.hub.get_token() is None:
            raise ConfigError("--to hf: nobody is logged in; allowed: `hf auth login`, or a key in HF_TOKEN", key="to")

    def push(self, release: Release) -> str:
        private = not self.place.public
        self._ask(lambda: self.api.create_repo(**self.where, private=private, exist_ok=True))
        commit, tag = self._ask(lambda: self._commit(release)), f"v{release.version}"
        self._ask(lambda: self.api.create_tag(**self.where, tag=tag, revision=commit, exist_ok=True))
        return f"{self.address}/tree/{tag}"

    def _commit(self, release: Release) -> str:
        """Make the repository hold the release and nothing else; return the commit.
        It is called again if an answer was lost, so it looks first: the commit may have been made."""
        info = self.api.repo_info(**self.where)
        self.place.check_visibility(f"--to hf: {self.address}", is_public=not info.private)
        held_files = {file.rfilename for file in info.siblings or ()}
        old = self._read_manifest(info.sha) if MANIFEST in held_files else {}
        if foreign := sorted(held_files - set(old) - set(OF_THE_HUB)):
            raise ConfigError(
                f"--to hf: {self.address} holds files of others ({make_line(', '.join(foreign), 200)}); "
                "allowed: a new repository, or one that only `viewbox publish` wrote to",
                key="id",
            )
        if old == release.hashes and held_files >= set(old):
            return str(info.sha)
        manifest = json.dumps({**release.about, "files": release.hashes}, indent=1) + "\n"
        add, delete = self.hub.CommitOperationAdd, self.hub.CommitOperationDelete
        changes = [add(name, str(release.folder / name)) for name in release.hashes]
        changes += [add(MANIFEST, manifest.encode()), *(delete(name) for name in old if name not in release.hashes)]
        message = f"{release.name} {release.version}"
        made = self.api.create_commit(**self.where, operations=changes, commit_message=message, parent_commit=info.sha)
        return str(made.oid)

    def _read_manifest(self, revision: str) -> dict[str, str]:
        """Return the files of an older release with their hashes; empty if nothing readable says which they are."""
        path = Path(self.api.hf_hub_download(**self.where, filename=MANIFEST, revision=revision))
        try:
            if path.stat().st_size > MAX_MANIFEST:
                return {}
            files = json.loads(path.read_text(encoding="utf-8"))["files"]
            return {str(name): str(value) for name, value in files.items()}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return {}

    def fetch(self, release: Release, folder: Path) -> None:
        tag = f"v{release.version}"
        self._ask(lambda: self.api.snapshot_download(**self.where, revision=tag, local_dir=folder))

    def _ask(self, request: Callable[[], Result]) -> Result:
        """Make a request again if the hub is busy; its other refusals become a `ConfigError` without any key."""
        errors = self.hub.errors
        try:
            for attempt in range(ATTEMPTS - 1):
                try:
                    return request()
                except Exception as error:
                    status = getattr(getattr(error, "response", None), "status_code", None)
                    if not isinstance(error, self.network_errors) and status not in BUSY:
                        raise
                    time.sleep(WAIT * 2**attempt)
            return request()
        except errors.RepositoryNotFoundError as error:
            raise MissingError(self._describe(error), key="id") from error
        except ConfigError:
            raise
        except (errors.HfHubHTTPError, *self.network_errors, OSError, ValueError) as error:
            raise ConfigError(self._describe(error), key="to") from error

    def _describe(self, error: Exception) -> str:
        said = make_line(mask_message(str(error)), MAX_SHOWN)
        return f"--to hf: {self.address}: {said}; run the command again: what has arrived is not sent twice"
