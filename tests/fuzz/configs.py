"""YAML and `key=value`: a config is read, its reward and environment are made, or a `ConfigError` says why not."""

import json
import random
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path

import viewbox
from tests.fuzz.mutate import ODD_TEXTS, mutate_text
from viewbox.configs import schema
from viewbox.configs.yaml_reader import parse_key_values
from viewbox.errors import ConfigError
from viewbox.rewards import build

CPU_SECONDS = 10.0
OVERRIDES = (
    "env.noise=3", "train.learning_rate=1e-4", "reward.components.label.weight=0.5", "rollout.stop=[a, b]",
    "log.name=x",
)  # fmt: skip
BASE = """model: {name: m}
env: {name: digits, noise: 3, max_turns: 3, templates: {question: "{{ question }} is it?"}}
reward: &r {type: combined, components: {label: {type: exact_match, field: label, weight: 0.5},
  box: {type: iou, field: bbox, weight: 0.5, needs: {label: 1.0}}}}
rollout: {temperature: 1.0, top_p: 0.9, stop: ["</s>"]}
train: {method: grpo, max_steps: 2, learning_rate: 1e-4}
"""


@cache
def get_corpus() -> tuple[str, ...]:
    shipped = [path for path in resources.files("viewbox.configs").iterdir() if path.name.endswith(".yaml")]
    return (BASE, BASE, *(path.read_text(encoding="utf-8") for path in sorted(shipped, key=lambda path: path.name)))


def make_case(chance: random.Random) -> bytes:
    text = mutate_text(chance, chance.choice(get_corpus()), (*get_corpus(), *ODD_TEXTS))
    override = chance.choice(OVERRIDES)
    override = mutate_text(chance, override, OVERRIDES) if chance.random() < 0.5 else override
    return json.dumps({"yaml": text, "override": override}).encode()


def check_case(content: bytes, folder: Path) -> None:
    case = json.loads(content)
    path = folder / "config.yaml"
    path.write_bytes(case["yaml"].encode("utf-8", "surrogatepass"))
    for overrides in ([], [case["override"]]):
        with suppress(ConfigError):
            config = schema.load(str(path), overrides)
            if config.reward is not None:
                build(config.reward)
            if config.env.name == "digits":
                viewbox.make(config.env.name, **config.env.settings)
    with suppress(ConfigError):
        parse_key_values([case["override"]])
