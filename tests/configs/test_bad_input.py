"""Bad input of every kind: one message that names file, line or key, value, what is allowed and the nearest name."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

import viewbox as library
from tests.support import forks
from tests.support.run_cases import edit_json
from tests.support.tables import each
from viewbox.envs.digits import Digits
from viewbox.rewards import build
from viewbox.training import command as train

RUN = """\
model:
  name: model
  dtype: float32
env:
  name: digits
  max_turns: 3
  eval: {split: test}
reward:
  type: combined
  components:
    label: {type: exact_match, field: label, weight: 0.5}
    box: {type: iou, field: bbox, weight: 0.5}
rollout:
  slots: 8
  max_reply_tokens: 40
  max_completion_tokens: 400
train:
  method: grpo
  num_generations: 4
  per_device_train_batch_size: 8
log:
  eval_tasks: 6
"""
FEW = "env.num_tasks=64"  # where all tasks are looked at, which takes seconds
SFT = {18: "  method: sft", 19: ""}
ENV = """
from pathlib import Path
from viewbox import BaseMultiTurnEnv, ImageRef, Task
from viewbox.envs.digits import Digits

class Scan(BaseMultiTurnEnv):
    name = "scan"
    answer = {"type": "object", "properties": {"finding": {"type": "string"}}}
    path: str = "missing.png"

    @property
    def tasks(self):
        return [Task("t", images=(ImageRef("0", 8, 8, "L", str(Path(__file__).parent / self.path)),))]

    def default_reward(self):
        return lambda answer, reference: 1.0

class Empty(Scan):
    @property
    def tasks(self):
        return []

class Stream(Scan):
    @property
    def tasks(self):
        return iter([])

def glance(view: "View") -> str:
    "Look."

class Typed(Scan):
    tools = (glance,)

class Broken(Digits):
    @property
    def tasks(self):
        return 1 / 0

class Stopped(Digits):
    @property
    def tasks(self):
        raise KeyboardInterrupt
"""
SCAN = {5: "  name: scans:Scan", 6: "", 7: "", 8: "", 9: "", 10: "", 11: "", 12: "", 22: "  eval_tasks: 1"}
REWARDS = """
def fine(answer, reference): return 0.5
def nan(answer, reference): return float("nan")
def alone(answer): return 0.5
async def later(answer, reference): return 0.5
number = 3
"""


def python(name):
    return {9: "  type: python", 10: f"  function: {name}", 11: "", 12: ""}


# What is changed: lines of RUN, the arguments, or the whole file; and what the message says.
KEYS = [
    ({14: "  slot: 8"}, "line 14: rollout.slot: unknown key 'slot'", "allowed: engine", "did you mean 'slots'?"),
    ({**SFT, 19: "  demonstrations: {count: 5, habits: {gues: 1}}"}, "line 19: train.demonstrations.habits",
        "unknown habit 'gues'", "did you mean 'guess'?"),
    ({19: "  lr: 1e-5"}, "line 19: train.lr: unknown key 'lr' (did you mean 'learning_rate'?)"),
    ({19: "  temperature: 0.5"}, "line 19: train.temperature: cannot be set here", "rollout.temperature"),
    ({6: "  max_turn: 3"}, "line 6: env.max_turn: digits: unknown setting", "did you mean 'max_turns'?"),
    ({7: "  eval: {spilt: test}"}, "line 7: env.eval.spilt: digits", "did you mean 'split'?"),
    ({6: "  reward: {type: iou}"}, "line 6: env.reward: not a setting"),
    ({12: "    box: {type: iou, treshold: 0.5, weight: 0.5}"}, "line 12: reward.components.box.treshold",
        "did you mean 'threshold'?"),
    ("model: {name: m}\n", "run.yaml: env: is missing"), ({5: ""}, "line 4: env.name: is missing; allowed: text"),
]  # fmt: skip
TYPES = [
    ({6: "  max_turns: few"}, "line 6: env.max_turns: digits: max_turns = 'few'", "a whole number of at least 1"),
    ({7: "  eval: {split: tset}"}, "env.eval.split: digits: split = 'tset'", "'train' or 'test'",
        "did you mean 'test'?"),
    ({19: "  lr_scheduler_type: cosin"}, "train.lr_scheduler_type = 'cosin'", "allowed: linear, cosine",
        "did you mean 'cosine'?"),
    ({19: "  loss_type: dapoo"}, "line 19: train.loss_type = 'dapoo'", "allowed: grpo, bnpo", "did you mean 'dapo'?"),
    ({12: "    box: {type: iou, threshold: half, weight: 0.5}"}, "line 12: reward.components.box.threshold", "'half'"),
]  # fmt: skip
CONTRADICTIONS = [
    ({19: "  num_generations: 3"}, "line 19: train.num_generations = 3", "8 episodes", "allowed: 2, 4, 8"),
    ({19: "  num_generations: 1"}, "line 19: train.num_generations = 1", "allowed: at least 2"),
    ({15: "  max_reply_tokens: 500"}, "line 15: rollout.max_reply_tokens = 500", "an episode has", "at most 400"),
    ({16: "  max_completion_tokens: 4096"}, "line 16: rollout.max_completion_tokens = 4096", "context of 4096",
        "allowed: at most"),
    ({6: "  max_pixels: 147456\n", 7: "  canvas: 400"}, "env.max_pixels = 147456", "takes 576 tokens", "fewer than",
        "= 400"),
    ({6: "  max_pixels: 900", 7: "  pixel_multiple: 32"}, "env.max_pixels",
        "allowed with pixel_multiple = 32: at least 1024"),
    ({6: "  digit: 40", 7: "  canvas: 32"}, "line 4: env: digits: the first task cannot be opened",
        "does not fit on a canvas of 32"),
    ({19: "  bf16: true\n  fp16: true"}, "train.bf16 = True", "fp16"),
    ({**SFT, 19: "  demonstrations: {count: 5}\n  where: scores.totl>1"},
        "line 20: train.where 'scores.totl>1': unknown field of scores 'totl'", "did you mean 'total'?"),
    ({19: "  best_of_group: true"}, "train.best_of_group: only with train.method = sft"),
    ({19: "  demonstrations: {count: 5}"}, "line 19: train.demonstrations: only with train.method = sft"),
    (SFT, "line 17: train.method = sft: given: neither; allowed: exactly one of", "episodes"),
    ({7: "  eval: {num_tasks: 20}", 22: "  eval_tasks: 30"}, "line 22: log.eval_tasks = 30", "allowed: at most 20"),
    (["run.yaml", "log.report_to=[wandbb]"], "log.report_to: unknown tracker 'wandbb'", "did you mean 'wandb'?"),
    ({12: "    box: {type: iou, weight: 0.25}"}, "line 10: reward.components", "weights sum to 0.75",
        "allowed: a sum of 1"),
]  # fmt: skip
FILES = [
    (["quikstart"], "quikstart: no such file", "did you mean 'quickstart'?"),
    (["rum.yaml"], "rum.yaml: no such file", "did you mean 'run.yaml'?"), (["model"], "model: a folder, not a file"),
    ("", "run.yaml: is empty", "allowed: a mapping of the sections model, env"),
    ("- model\n", "run.yaml: holds a list; allowed: a mapping of the sections"),
    (b"\x89PNG\r\n", "run.yaml: is not UTF-8 text (byte 0 is 0x89)"),
    ("model:\n  name: \x07\n", "run.yaml, line 2: not YAML: the character 0x07"),
    ("model:\n\tname: m\n", "run.yaml, line 2: begins with a tab", "only spaces"),
    ({3: "  name: n"}, "run.yaml, line 3: the key 'name' is given twice (first: line 2)"),
    ({7: "  eval: {split: test"}, "run.yaml, line 8: not YAML", "expected ',' or '}'"),
    (["run.yaml", "--dry-ran"], "unrecognized arguments: --dry-ran", "did you mean '--dry-run'?"),
    (["--dry-run"], "the following arguments are required: config; see --help"),
    ({**SFT, 19: "  episodes: nowhere"}, "line 19: train.episodes: nowhere: no episodes here"),
    ({**SFT, 19: "  episodes: run.yaml"}, "line 19: train.episodes: run.yaml: no row of it can be learned from"),
]  # fmt: skip
MODELS = [
    ({2: "  name: ./modle"}, "line 2: model.name = './modle': no such folder", "did you mean 'model'?"),
    ({2: "  name: package:tiny"}, "line 2: model.name: unknown shipped model 'tiny'",
        "allowed: chest_classifier, chest_grounder, chest_segmenter, chest_writer, tiny_adviser, "
        "tiny_chest, tiny_trust, tiny_viewer"),
    ({2: "  name: run.yaml"}, "line 2: model.name = 'run.yaml': is a file", "allowed: a folder"),
    ({2: "  name: played"}, "line 2: model.name = 'played': has no config.json", "found: episodes.jsonl"),
    ({2: "  name: bare"}, "line 2: model.name = 'bare': cannot be loaded", "no file named model.safetensors"),
    ({2: "  name: torn"}, "line 2: model.name = 'torn': config.json cannot be read"),
    ({2: "  name: other"}, "line 2: model.name = 'other': unknown model_type 'qwen3_v1'", "did you mean 'qwen3_vl'?"),
]  # fmt: skip
ENVIRONMENTS = [
    ({5: "  name: digit"}, "line 5: env.name: unknown environment 'digit'", "did you mean 'digits'?"),
    ({5: "  name: fails:Env"}, "line 5: env.name", "fails cannot be imported: NameError", "fails.py, line 2)"),
    ({**SCAN, 5: "  name: scans:Typed"}, "env.tools: scan: tools = ",
        "glance: a type hint cannot be read: NameError: name 'View' is not defined (", "scans.py, line 28)"),
    ({6: "  tools: [zom]"}, "line 6: env.tools: digits: unknown tool 'zom'", "allowed: adaptive_equalize",
        "did you mean 'zoom'?"),
    (SCAN, "line 4: env: scan: the first task cannot be opened", "missing.png"),
    ({**SCAN, 6: "  path: torn.png"}, "line 4: env: scan: the first task cannot be opened", "torn.png': it is damaged"),
    ({**SCAN, 5: "  name: scans:Empty"}, "line 4: env: scan: has no tasks"),
    ({**SCAN, 5: "  name: scans:Stream"}, "env: scan: its tasks are a list_iterator; allowed: a sequence"),
    ({**SCAN, **SFT, 6: "  path: fine.png", 19: "  demonstrations: {count: 5}"},
        "line 19: train.demonstrations: scan: this environment has no demonstrations"),
]  # fmt: skip
REWARDS_CASES = [
    ({12: "    box: {type: iuo, weight: 0.5}"}, "line 12: reward.components.box: unknown reward 'iuo'",
        "allowed: brier, combined", "'iou'?"),
    ({11: "    label: {type: exact_match, field: lable, weight: 0.5}"}, "line 11: reward.components.label.field",
        "'lable'", "allowed: bbox, label", "did you mean 'label'?"),
    (python("judges:alone"), "reward 'judges:alone'", "takes (answer)", "allowed: a function of (answer"),
    (python("judges:later"), "reward 'judges:later'", "allowed"),
    (["run.yaml", "reward=judges:alone"], "override 'reward=judges:alone'", "takes (answer)"),
    (["run.yaml", "reward=strict"], "reward = 'strict': allowed: a file reward.yaml, package.module:name"),
    (python("judges:number"), "reward 'judges:number'", "is a int"),
]  # fmt: skip
CASES = KEYS + TYPES + CONTRADICTIONS + FILES + MODELS + ENVIRONMENTS + REWARDS_CASES  # types: see test_schema.py


@pytest.fixture
def workplace(tmp_path, tiny_folder, monkeypatch):
    """A folder with a model, broken copies of it, modules and pictures; the current folder, and importable."""
    (tmp_path / "model").symlink_to(tiny_folder, target_is_directory=True)
    for name, without in {"bare": "*.safetensors", "torn": "none", "other": "none"}.items():
        shutil.copytree(tiny_folder, tmp_path / name, ignore=shutil.ignore_patterns(without))
    (tmp_path / "torn" / "config.json").write_text('{"model_type": ')
    edit_json(tmp_path / "other" / "config.json", model_type="qwen3_v1")
    for name, code in {"scans": ENV, "fails": "\nundefined\n", "judges": REWARDS}.items():
        (tmp_path / f"{name}.py").write_text(code)
    (tmp_path / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    Image.new("L", (64, 64)).save(tmp_path / "fine.png")
    env = Digits()
    with library.EpisodeWriter(tmp_path / "played") as writer:
        writer.append(env.play(env.tasks[0], lambda messages: "{}"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write(change, name="run.yaml"):
    """Write RUN with lines changed, or another text; returns the arguments of `train`."""
    if isinstance(change, list):
        write({})
        return change
    lines = RUN.splitlines()
    for number, text in change.items() if isinstance(change, dict) else ():
        lines[number - 1] = text
    text = "\n".join(lines) + "\n" if isinstance(change, dict) else change
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    return [name]


@each("case", CASES)
def test_bad_input_ends_with_2_and_one_message_that_says_where_what_and_what_is_allowed(workplace, capsys, case):
    change, *words = case
    assert train.main([*write(change), "--dry-run"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert [word for word in words if word not in said.err] == []
    assert said.err.count("\n") == 1
    assert len(said.err) < 800
    assert not any(word in said.err for word in ("Traceback", "pydantic"))
    assert not (workplace / "runs").exists()


def test_every_mistake_of_form_is_said_at_once_and_those_of_the_trainers_keys_without_torch(workplace, capsys):
    write({13: "rollouts:", 18: "  method: ppo", 22: "  eval_tasks: -1"})
    assert train.main(["run.yaml"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.rpartition("run.yaml, ")[2].partition(":")[0] for line in said] == ["line 18", "line 22", "line 13"]
    write({14: "  temperature: 0", 19: "  num_generation: 4\n  learning_rate: fast"})
    code = "import sys, viewbox.training.command as c; print(c.main(['run.yaml']), 'torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout == "2 False\n", ended.stderr
    differ = "line 14: rollout.temperature = 0: grpo needs samples that differ; allowed: above 0"
    for words in (differ, "(did you mean 'num_generations'?)", "rate = 'fast'; allowed: a"):
        assert words in ended.stderr


@contextmanager
def pipe(text):
    """The path of a pipe that holds a text, as a shell's `<(…)` gives it: it can be read once."""
    end, start = os.pipe()
    os.write(start, text.encode())
    os.close(start)
    yield f"/dev/fd/{end}"
    os.close(end)


def test_the_run_that_the_cases_change_is_right_and_read_from_a_pipe_with_a_reward_from_another(workplace, capsys):
    reward = "type: combined\ncomponents:\n  label: {type: exact_match, field: label, weight: 1}\n"
    with pipe(RUN) as config, pipe(reward) as other:
        assert train.main([config, "--dry-run", f"reward={other}", FEW]) == 0
    assert "1 label (exact_match: field 'label')\n" in capsys.readouterr().out


def test_a_reward_that_returns_nan_gives_no_score_is_said_once_and_training_goes_on(workplace, caplog):
    env = library.make("digits", reward=build({"type": "python", "function": "judges:nan"}))
    played = [env.play(env.tasks[0], lambda messages: "{}") for _ in range(2)]
    assert [env.score(one).total for one in played] == [None, None]
    (said,) = [record.getMessage() for record in caplog.records if "nan" in record.getMessage()]
    assert "allowed: None or a number in [0, 1]" in said


def test_without_arguments_the_config_alone_is_asked_for_and_the_usage_shows_that_overrides_are_optional(capsys):
    assert train.main([]) == 2
    assert capsys.readouterr().err == "error: the following arguments are required: config; see --help\n"
    with pytest.raises(SystemExit):
        train.main(["--help"])
    assert "config [key.path=value ...]" in " ".join(capsys.readouterr().out.split())


# ---------------------------------------------------------------------- failures of an author's, and of ours
def test_a_failure_of_an_authors_ends_with_2_and_names_its_line_and_the_file_with_the_traceback(workplace, capsys):
    write({5: "  name: scans:Broken"})
    assert train.main(["run.yaml"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    line = ENV.splitlines().index("        return 1 / 0") + 1
    assert first.endswith(f"scans.py, line {line}: ZeroDivisionError: division by zero")
    log = Path(second.removeprefix("the traceback is in "))
    assert "scans.py" in log.read_text()
    shutil.rmtree(log.parent)


def test_a_failure_of_ours_ends_with_1_and_leaves_its_traceback_in_the_runs_folder(workplace, capsys, monkeypatch):
    def fail(run):
        raise RuntimeError("the outline is\nlost")

    monkeypatch.setattr("viewbox.training.run.Run.execute", fail)
    write({22: "  eval_tasks: 1"})
    assert train.main(["run.yaml"]) == 1
    first, second = capsys.readouterr().err.splitlines()[-2:]
    assert first == "error: viewbox failed: RuntimeError: the outline is lost"
    assert second == "the traceback is in runs/run-seed0/crash.log"
    assert "in fail" in (workplace / "runs" / "run-seed0" / "crash.log").read_text()


# ---------------------------------------------------------------------- as a user types it
@each("name, lines", [("digit", 1), ("scans:Broken", 2)])
def test_the_installed_command_ends_the_same_way_and_a_stopped_one_with_130(workplace, capsys, name, lines):
    write({5: f"  name: {name}"})
    command = [Path(sys.executable).with_name("viewbox"), "train", "run.yaml", "--dry-run"]
    status, said = forks.start_script(*command, folder=workplace, TMPDIR=str(workplace)).wait()
    assert status == 2
    assert said.startswith("error: ")
    assert "Traceback" not in said
    assert said.count("\n") == lines
    write({5: "  name: scans:Stopped"})
    assert train.main(["run.yaml", "--dry-run"]) == 130
    assert capsys.readouterr().err == "stopped\n"


@each("arguments", [["trian"], ["view"], ["view", "nowhere", "--out"]])
def test_a_command_that_is_mistyped_ends_with_2_and_no_traceback(viewbox, arguments):
    status, _, said = viewbox(*arguments)
    assert status == 2
    assert "Traceback" not in said
    assert len(said.splitlines()) < 10
