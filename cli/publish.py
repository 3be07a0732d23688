"""The command line's side of publishing: settings in, and what to do next out."""

import shlex
from collections.abc import Iterable
from typing import Any

import yaml

from viewbox.errors import ConfigError
from viewbox.publish.package import Published


def settings_of(given: Iterable[str]) -> dict[str, Any]:
    """The settings in `key=value`, the value read as YAML.

    >>> settings_of(["split=test", "max_turns=3", "tools=[zoom, crop]"])
    {'split': 'test', 'max_turns': 3, 'tools': ['zoom', 'crop']}
    """
    settings = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {one!r}; allowed: key=value")
        try:
            settings[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"--set {one!r}: the value is not YAML: {error}") from error
    return settings


def report(written: Published) -> str:
    """What was written, what was tried, and the commands that follow.

    The folder is a full path in them: pip takes a bare word for the name of somebody's project and fetches that.
    """
    folder = shlex.quote(str(written.folder.resolve()))
    wheel = f"{written.id.replace('-', '_')}-{written.version}-py3-none-any.whl"
    return "\n".join(
        [
            f"{written.folder}: {written.id} {written.version}, {written.files} files, {written.bytes / 1000:.0f} kB",
            *(f"- {finding}" for finding in written.findings),
            "next:",
            f"  pip wheel --no-deps --wheel-dir {folder}/dist {folder}",
            f"  pip install {folder}/dist/{wheel}",
            f"  vf-eval {written.id} --model MODEL --client.base-url URL --no-push --no-rich -n 3",
        ]
    )
