"""Templates of the generated files of a published package."""

PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = {id}
version = {version}
description = {description}
readme = "README.md"
{license}requires-python = ">=3.11"
keywords = {tags}
tags = {tags}
dependencies = {dependencies}

# What `viewbox check` opens.
[project.entry-points."viewbox.environments"]
{id} = {taskset}

# The whole folder is the package, even inside a repository that ignores it.
[tool.hatch.build]
ignore-vcs = true
exclude = ["__pycache__"]

[tool.hatch.build.targets.wheel]
packages = [{module}]
"""

INIT = '''\
"""{description}

Written by `viewbox publish` of viewbox {viewbox}.
"""

from pathlib import Path

from {module}._vendor import provide

{provides}

from viewbox.integrations.verifiers import ViewboxEnv, ViewboxHarness, ViewboxTaskset  # noqa: E402

__all__ = ["{taskset}", "ViewboxEnv", "ViewboxHarness"]


class {taskset}(ViewboxTaskset):
    environment = {environment!r}
    settings = {settings!r}
    folder = str(Path(__file__).parent)
'''

VENDOR = '''\
"""Copies of packages that are not on PyPI. A copy is used only if the package itself is not installed."""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path


def provide(name: str, version: str | None = None) -> None:
    """Makes `name` importable: the installed package, which must have the minor version `version`, or the copy."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:  # a folder without __init__.py does not count
        folder = Path(__file__).parent / name
        spec = spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    if version is None:
        return
    found = import_module(name).__version__
    if found.split(".")[:2] != version.split(".")[:2]:
        raise ImportError(
            f"{__name__.split('.')[0]} was published with {name} {version}, but {name} {found} is installed "
            f"({spec.origin}): uninstall it, or publish the environment again with {name} {found}"
        )
'''

CARD = "<!-- written by viewbox publish -->"  # before the generated part of a README; the rest is the author's

README = (
    f"""\
{CARD}
"""
    + """\
# {id}

{summary}

A viewbox environment for verifiers 0.4: the model sees an image, may call tools that show it other views, and answers.

| | |
|---|---|
| tasks | {tasks} |
| tools | {tools} |
| turns | at most {max_turns} |
| reward | `{reward}` |
| license | {license} by the publisher of this package |

The answer:

{answer}

```
pip install .
vf-eval {id} --model MODEL --client.base-url URL --no-push --no-rich -n 3
```

- To change settings of the environment, add `--env.taskset.settings '{{"max_turns": 3}}'`.
- If your endpoint accepts no images in tool messages, add `--env.tool-images user`.
- The reward of a trace is the total score of the episode; its components are metrics. `trace.info["viewbox"]` holds
  the end reason, the parsed answer and every tool result. `vf-replay` computes the scores again from them.

It was published with the settings

{settings}

{provided}
"""
)

# The last paragraph of the README: where viewbox comes from
COPIED = """\
The package contains a copy of viewbox {viewbox} (`{module}/_vendor`, license: Apache-2.0), which is used only if
viewbox is not installed."""
REQUIRED = "It is played by viewbox {viewbox} or a later patch of it, which pip installs with the package."
