"""Runs as a stranger could have made them: any text in config.yaml, any bytes as lines, any file anywhere."""

import json
import os
from pathlib import Path

import yaml

REFERENCE = {"label": "one", "bbox": [0.1, 0.1, 0.4, 0.4]}
MARK = "a stranger's code ran"
CODE = f"""
from pathlib import Path
Path(__file__).with_name("RAN").write_text({MARK!r})
import viewbox
def score(answer, reference):
    return 1.0
def of_episode(episode):
    return 1.0
class E(viewbox.BaseMultiTurnEnv):
    name = "gift"
    metrics = {{}}
    def default_reward(self):
        return viewbox.ExactMatchReward()
class R:
    name = "r"
    def __call__(self, answer, reference):
        return 1.0
"""


def make_line(number=0, **fields):
    """A good episode of `digits` as a mapping, with `fields` in place of its own."""
    task = {"id": f"t{number}", "reference": REFERENCE}
    data = {"task": task, "answer": REFERENCE, "environment": "digits", "scores": {"total": 1.0}, **fields}
    return {key: value for key, value in data.items() if value is not ...}


def forge_run(folder, lines=None, config=None, code=False):
    """A run folder; `lines` are mappings, text or bytes, `config` a mapping or text."""
    episodes = Path(folder) / "episodes"
    episodes.mkdir(parents=True)
    (episodes / "format.json").write_text('{"format": 2}')
    lines = [make_line(0), make_line(1)] if lines is None else lines
    with (episodes / "episodes.jsonl").open("wb") as file:
        for line in lines:
            text = line if isinstance(line, str | bytes) else json.dumps(line)
            file.write((text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")) + b"\n")
    if config is not None:
        (Path(folder) / "config.yaml").write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    if code:
        (Path(folder) / "helper.py").write_text(CODE)
    return Path(folder)


def has_run(folder):
    """Whether the code of a forged run ran."""
    return (Path(folder) / "RAN").exists()


# ---------------------------------------------------------------------- what is put in the place of a file
def link_to(target):
    return lambda path: path.symlink_to(target)


def make_large(path):
    with path.open("wb") as file:
        file.truncate(3 * 2**40)


def write_text(text):
    return lambda path: path.write_text(text)


HOSTILE = {  # each puts something at a path
    "a pipe": os.mkfifo,
    "a device": link_to("/dev/zero"),
    "the terminal": link_to("/dev/stdin"),
    "a link out": link_to("/etc/hostname"),
    "a link to nothing": link_to("/nowhere/at/all"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link up": link_to("../../../../../../etc/hostname"),
    "a folder": Path.mkdir,
    "3 TB": make_large,
    "a link to a process": link_to("/proc/self/environ"),
}
