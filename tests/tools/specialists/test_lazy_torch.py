"""Torch is imported when a model is loaded, and not before: not to declare tools, write prompts or open an episode."""

import subprocess
import sys
from pathlib import Path

import viewbox

CONFIG = Path(viewbox.__file__).with_name("configs") / "chest_xray.yaml"
CODE = """
import importlib, pkgutil, sys
import yaml
import viewbox, viewbox.tools.specialists.models
from viewbox.tools.specialists import get_specialist_class, list_kinds

def list_heavy():
    return sorted({"torch", "transformers", "torchvision"} & set(sys.modules))

for kind in list_kinds():
    get_specialist_class(kind)
for module in pkgutil.iter_modules(viewbox.tools.specialists.models.__path__):
    importlib.import_module(f"viewbox.tools.specialists.models.{module.name}")
specs = yaml.safe_load(open(sys.argv[1]))["env"]["specialists"]
env = viewbox.make("chest_xray", questions=["which"], specialists=specs)
state = env.reset(env.tasks[0], seed=0)
assert all(name in env.tools for name in specs)
env.build_system_prompt(env.tasks[0]), env.tool_schemas
print(list_heavy())
shipped = {"kind": "classification", "model": "package:chest_classifier", "device": "cpu"}
env = viewbox.make("chest_xray", questions=["which"], specialists={"classify": shipped})
print(list_heavy())
env.prepare()
print("torch" in list_heavy())
"""


def test_nothing_imports_torch_until_a_model_is_loaded(tmp_path):
    command = [sys.executable, "-c", CODE, str(CONFIG)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["[]", "[]", "True"]
