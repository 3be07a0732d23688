"""Bad input of every kind: one message that names file, line or key, value, what is allowed and the nearest name."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from PIL import Image

import viewbox
from tests.support import forks
from viewbox.cli import app as cli
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

class NotOne:
    pass

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


@dataclass(frozen=True)
class Case:
    """Lines of RUN that are replaced, what is written beside it, the command line, and what its message must say."""

    name: str
    words: tuple[str, ...]
    lines: dict[int, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ("run.yaml",)
    text: str | bytes | None = None  # the whole file


def case(name, *words, lines=None, override=None, arguments=None, text=None):
    given = arguments or ("run.yaml", *((override,) if override else ()))
    return Case(name, words, lines or {}, tuple(given), text)


KEYS = [
    case("unknown section", "line 13: rollouts: unknown key", "did you mean 'rollout'?", lines={13: "rollouts:"}),
    case("unknown key", "line 14: rollout.slot: unknown key 'slot'", "allowed: engine", "did you mean 'slots'?",
         lines={14: "  slot: 8"}),
    case("unknown habit", "line 19: train.demonstrations.habits", "unknown habit 'gues'", "did you mean 'guess'?",
         lines={**SFT, 19: "  demonstrations: {count: 5, habits: {gues: 1}}"}),
    case("unknown argument of the trainer", "line 19: train.num_generation: unknown key",
         "did you mean 'num_generations'?",
         lines={19: "  num_generation: 4"}),
    case("another library's name of an argument", "line 19: train.lr: unknown key 'lr' (did you mean 'learning_rate'?)",
         lines={19: "  lr: 1e-5"}),
    case("argument viewbox sets itself", "line 19: train.temperature: cannot be set here", "rollout.temperature",
         lines={19: "  temperature: 0.5"}),
    case("unknown setting of the environment", "line 6: env.max_turn: digits: unknown setting",
         "did you mean 'max_turns'?",
         lines={6: "  max_turn: 3"}),
    case("unknown setting of held-out tasks", "line 7: env.eval.spilt: digits", "did you mean 'split'?",
         lines={7: "  eval: {spilt: test}"}),
    case("setting that is a section", "line 6: env.reward: not a setting", lines={6: "  reward: {type: iou}"}),
    case("unknown key in a reward", "line 12: reward.components.box.treshold", "did you mean 'threshold'?",
         lines={12: "    box: {type: iou, treshold: 0.5, weight: 0.5}"}),
    case("missing section", "run.yaml: env: is missing", text="model: {name: m}\n"),
    case("missing name of the environment", "line 4: env.name: is missing; allowed: text", lines={5: ""}),
]  # fmt: skip
TYPES = [
    case("environment setting", "line 6: env.max_turns: digits: max_turns = 'few'", "a whole number of at least 1",
         lines={6: "  max_turns: few"}),
    case("environment's choice", "env.eval.split: digits: split = 'tset'", "'train' or 'test'", "did you mean 'test'?",
         lines={7: "  eval: {split: tset}"}),
    case("argument of the trainer", "line 19: train.learning_rate = 'fast'", "allowed: a number",
         lines={19: "  learning_rate: fast"}),
    case("scheduler", "train.lr_scheduler_type = 'cosin'", "allowed: linear, cosine", "did you mean 'cosine'?",
         lines={19: "  lr_scheduler_type: cosin"}),
    case("a bare yes", "line 19: train.bf16 = 'yes'; allowed: true or false", "(did you mean true?)",
         lines={19: "  bf16: yes"}),
    case("a bare off", "line 19: train.use_cpu = 'off'; allowed: true or false", "(did you mean false?)",
         lines={19: "  use_cpu: off"}),
    case("a commit that is a number", "line 4: model.revision = 58899.0", "text (write a number in quotes)",
         lines={3: "  dtype: float32\n  revision: 58899e0"}),
    case("loss", "line 19: train.loss_type = 'dapoo'", "allowed: grpo, bnpo", "did you mean 'dapo'?",
         lines={19: "  loss_type: dapoo"}),
    case("reward's number", "line 12: reward.components.box.threshold", "'half'",
         lines={12: "    box: {type: iou, threshold: half, weight: 0.5}"}),
]  # fmt: skip
CONTRADICTIONS = [
    case("group that does not divide the batch", "line 19: train.num_generations = 3", "8 episodes", "allowed: 2, 4, 8",
         lines={19: "  num_generations: 3"}),
    case("group of one", "line 19: train.num_generations = 1", "allowed: at least 2",
         lines={19: "  num_generations: 1"}),
    case("reply longer than an episode", "line 15: rollout.max_reply_tokens = 500", "an episode has", "at most 400",
         lines={15: "  max_reply_tokens: 500"}),
    case("episode longer than the model's context", "line 16: rollout.max_completion_tokens = 4096", "context of 4096",
         "allowed: at most", lines={16: "  max_completion_tokens: 4096"}),
    case("picture that never fits", "env.max_pixels = 147456", "takes 576 tokens", "fewer than", "= 400",
         lines={6: "  max_pixels: 147456\n", 7: "  canvas: 400"}),
    case("view smaller than the patch grid", "env.max_pixels", "allowed with pixel_multiple = 32: at least 1024",
         lines={6: "  max_pixels: 900", 7: "  pixel_multiple: 32"}),
    case("digit larger than its canvas", "line 4: env: digits: the first task cannot be opened",
         "does not fit on a canvas of 32",
         lines={6: "  digit: 40", 7: "  canvas: 32"}),
    case("greedy samples", "line 14: rollout.temperature = 0", "allowed: above 0", lines={14: "  temperature: 0"}),
    case("two precisions", "train.bf16 = True", "fp16", lines={19: "  bf16: true\n  fp16: true"}),
    case("a condition on no field", "line 20: train.where 'scores.totl>1': unknown field of scores 'totl'",
         "did you mean 'total'?", lines={**SFT, 19: "  demonstrations: {count: 5}\n  where: scores.totl>1"}),
    case("a condition without supervised learning", "train.best_of_group: only with train.method = sft",
         lines={19: "  best_of_group: true"}),
    case("demonstrations without a warm start", "line 19: train.demonstrations: only with train.method = sft",
         lines={19: "  demonstrations: {count: 5}"}),
    case("warm start from nothing", "line 17: train.method = sft: given: neither; allowed: exactly one of",
         "episodes", lines=SFT),
    case("more held-out tasks than there are", "line 22: log.eval_tasks = 30", "allowed: at most 20",
         lines={7: "  eval: {num_tasks: 20}", 22: "  eval_tasks: 30"}),
    case("unknown tracker", "log.report_to: unknown tracker 'wandbb'", "did you mean 'wandb'?",
         override="log.report_to=[wandbb]"),
    case("weights of a reward", "line 10: reward.components", "weights sum to 0.75", "allowed: a sum of 1",
         lines={12: "    box: {type: iou, weight: 0.25}"}),
]  # fmt: skip
FILES = [
    case("missing shipped config", "quikstart: no such file", "did you mean 'quickstart'?", arguments=["quikstart"]),
    case("missing file", "rum.yaml: no such file", "did you mean 'run.yaml'?", arguments=["rum.yaml"]),
    case("folder for a file", "model: a folder, not a file", arguments=["model"]),
    case("empty file", "run.yaml: is empty", "allowed: a mapping of the sections model, env", text=""),
    case("list", "run.yaml: holds a list; allowed: a mapping of the sections", text="- model\n"),
    case("not text", "run.yaml: is not UTF-8 text (byte 0 is 0x89)", text=b"\x89PNG\r\n"),
    case("control character", "run.yaml, line 2: not YAML: the character 0x07", text="model:\n  name: \x07\n"),
    case("tab", "run.yaml, line 2: begins with a tab", "only spaces", text="model:\n\tname: m\n"),
    case("key given twice", "run.yaml, line 3: the key 'name' is given twice (first: line 2)", lines={3: "  name: n"}),
    case("bracket left open", "run.yaml, line 8: not YAML", "expected ',' or '}'", lines={7: "  eval: {split: test"}),
    case("override without a value", "override 'train.seed': write key.path=value", override="train.seed"),
    case("unknown option", "unrecognized arguments: --dry-ran", "did you mean '--dry-run'?",
         arguments=["run.yaml", "--dry-ran"]),
    case("no config", "the following arguments are required: config; see --help", arguments=["--dry-run"]),
    case("folder without episodes", "line 19: train.episodes: nowhere: no episodes here",
         lines={**SFT, 19: "  episodes: nowhere"}),
    case("no conversation in a file", "line 19: train.episodes: run.yaml: no row of it can be learned from",
         lines={**SFT, 19: "  episodes: run.yaml"}),
]  # fmt: skip
MODELS = [
    case("no such model", "line 2: model.name = './modle': no such folder", "did you mean 'model'?",
         lines={2: "  name: ./modle"}),
    case("unknown shipped model", "line 2: model.name: unknown shipped model 'tiny'",
         "allowed: chest_classifier, chest_grounder, chest_segmenter, chest_writer, tiny_adviser, tiny_chest, "
         "tiny_trust, tiny_viewer",
         lines={2: "  name: package:tiny"}),
    case("file for a model", "line 2: model.name = 'run.yaml': is a file", "allowed: a folder",
         lines={2: "  name: run.yaml"}),
    case("folder that is no model", "line 2: model.name = 'played': has no config.json", "found: episodes.jsonl",
         lines={2: "  name: played"}),
    case("model without weights", "line 2: model.name = 'bare': cannot be loaded", "no file named model.safetensors",
         lines={2: "  name: bare"}),
    case("broken config.json", "line 2: model.name = 'torn': config.json cannot be read", lines={2: "  name: torn"}),
    case("unsupported architecture", "line 2: model.name = 'other': unknown model_type 'qwen3_v1'",
         "did you mean 'qwen3_vl'?", lines={2: "  name: other"}),
]  # fmt: skip
ENVIRONMENTS = [
    case("unknown environment", "line 5: env.name: unknown environment 'digit'", "did you mean 'digits'?",
         lines={5: "  name: digit"}),
    case("module that is not there", "line 5: env.name", "'nowhere:Env'", "No module named 'nowhere'",
         lines={5: "  name: nowhere:Env"}),
    case("module that fails", "line 5: env.name", "fails cannot be imported: NameError", "fails.py, line 2)",
         lines={5: "  name: fails:Env"}),
    case("class that is no environment", "line 5: env.name", "'NotOne' is not an environment", "BaseMultiTurnEnv",
         lines={5: "  name: scans:NotOne"}),
    case("hint that cannot be read", "env.tools: scan: tools = ", "glance: a type hint cannot be read: NameError: name "
         "'View' is not defined (", "scans.py, line 31)", lines={**SCAN, 5: "  name: scans:Typed"}),
    case("unknown tool", "line 6: env.tools: digits: unknown tool 'zom'", "allowed: adaptive_equalize",
         "did you mean 'zoom'?", lines={6: "  tools: [zom]"}),
    case("missing image", "line 4: env: scan: the first task cannot be opened", "missing.png", lines=SCAN),
    case("unreadable image", "line 4: env: scan: the first task cannot be opened", "torn.png': it is damaged",
         lines={**SCAN, 6: "  path: torn.png"}),
    case("no tasks", "line 4: env: scan: has no tasks", lines={**SCAN, 5: "  name: scans:Empty"}),
    case("tasks without a number", "env: scan: its tasks are a list_iterator; allowed: a sequence",
         lines={**SCAN, 5: "  name: scans:Stream"}),
    case("no demonstrations", "line 19: train.demonstrations: scan: this environment has no demonstrations",
         lines={**SCAN, **SFT, 6: "  path: fine.png", 19: "  demonstrations: {count: 5}"}),
]  # fmt: skip
REWARDS_CASES = [
    case("unknown reward", "line 12: reward.components.box: unknown reward 'iuo'", "allowed: brier, combined", "'iou'?",
         lines={12: "    box: {type: iuo, weight: 0.5}"}),
    case("field no answer has", "line 11: reward.components.label.field", "'lable'", "allowed: bbox, label",
         "did you mean 'label'?", lines={11: "    label: {type: exact_match, field: lable, weight: 0.5}"}),
    case("reward that does not import", "reward 'nowhere:score'", "No module named 'nowhere'",
         lines=python("nowhere:score")),
    case("reward with another signature", "reward 'judges:alone'", "takes (answer)", "allowed: a function of (answer",
         lines=python("judges:alone")),
    case("reward that is asynchronous", "reward 'judges:later'", "allowed", lines=python("judges:later")),
    case("reward in short", "override 'reward=judges:alone'", "takes (answer)", override="reward=judges:alone"),
    case("no form of a reward", "reward = 'strict': allowed: a file reward.yaml, package.module:name",
         override="reward=strict"),
    case("reward that is a number", "reward 'judges:number'", "is a int", lines=python("judges:number")),
]  # fmt: skip
CASES = {  # what the type of a setting says is in test_schema.py
    "keys": KEYS, "types": TYPES, "contradictions": CONTRADICTIONS, "files": FILES, "models": MODELS,
    "environments": ENVIRONMENTS, "rewards": REWARDS_CASES,
}  # fmt: skip


@pytest.fixture
def workplace(tmp_path, tiny_folder, monkeypatch):
    """A folder with a model, broken copies of it, modules and pictures; the current folder, and importable."""
    (tmp_path / "model").symlink_to(tiny_folder, target_is_directory=True)
    broken_models(tmp_path, tiny_folder)
    for name, code in {"scans": ENV, "fails": "\nundefined\n", "judges": REWARDS}.items():
        (tmp_path / f"{name}.py").write_text(code)
    (tmp_path / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    Image.new("L", (64, 64)).save(tmp_path / "fine.png")
    env = Digits()
    with viewbox.EpisodeWriter(tmp_path / "played") as writer:
        writer.append(env.play(env.tasks[0], lambda messages: "{}"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


def broken_models(folder, model):
    for name, without in {"bare": "*.safetensors", "torn": "none", "other": "none"}.items():
        shutil.copytree(model, folder / name, ignore=shutil.ignore_patterns(without))
    (folder / "torn" / "config.json").write_text('{"model_type": ')
    found = json.loads((folder / "other" / "config.json").read_text())
    (folder / "other" / "config.json").write_text(json.dumps({**found, "model_type": "qwen3_v1"}))


def write(folder, one):
    lines = RUN.splitlines()
    for number, text in one.lines.items():
        lines[number - 1] = text
    text = "\n".join(lines) + "\n" if one.text is None else one.text
    (folder / "run.yaml").write_bytes(text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize("kind", CASES)
def test_bad_input_ends_with_2_and_one_message_that_says_where_what_and_what_is_allowed(workplace, capsys, kind):
    for one in CASES[kind]:
        write(workplace, one)
        assert train.main([*one.arguments, "--dry-run"]) == 2, one.name
        said = capsys.readouterr()
        assert said.out == "", one.name
        assert said.err.startswith("error: "), one.name
        for words in one.words:
            assert words in said.err, one.name
        assert said.err.count("\n") == 1, one.name
        assert len(said.err) < 800, one.name
        assert "Traceback" not in said.err, one.name
        assert "pydantic" not in said.err, one.name
        assert not (workplace / "runs").exists(), one.name


def test_the_run_that_the_cases_change_is_right(workplace, capsys):
    write(workplace, Case("right", ()))
    assert train.main(["run.yaml", "--dry-run", FEW]) == 0


def test_every_mistake_of_form_is_said_at_once(workplace, capsys):
    write(workplace, Case("three", (), {13: "rollouts:", 18: "  method: ppo", 22: "  eval_tasks: -1"}))
    assert train.main(["run.yaml"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.rpartition("run.yaml, ")[2].partition(":")[0] for line in said] == ["line 18", "line 22", "line 13"]


def test_what_is_wrong_with_the_trainers_keys_is_said_at_once_and_without_torch(workplace):
    write(workplace, Case("three", (), {14: "  temperature: 0", 19: "  num_generation: 4\n  learning_rate: fast"}))
    code = "import sys, viewbox.training.command as c; print(c.main(['run.yaml']), 'torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout == "2 False\n", ended.stderr
    for words in ("line 14: rollout.temperature = 0", "(did you mean 'num_generations'?)", "rate = 'fast'; allowed: a"):
        assert words in ended.stderr


@contextmanager
def pipe(text):
    """The path of a pipe that holds a text, as a shell's `<(…)` gives it: it can be read once."""
    end, start = os.pipe()
    os.write(start, text.encode())
    os.close(start)
    yield f"/dev/fd/{end}"
    os.close(end)


def test_a_config_and_a_reward_from_a_pipe_are_read(workplace, capsys):
    reward = "type: combined\ncomponents:\n  label: {type: exact_match, field: label, weight: 1}\n"
    with pipe(RUN) as config, pipe(reward) as other:
        assert train.main([config, "--dry-run", f"reward={other}", FEW]) == 0
    assert "1 label (exact_match: field 'label')\n" in capsys.readouterr().out


def test_a_reward_that_returns_nan_gives_no_score_is_said_once_and_training_goes_on(workplace, caplog):
    env = viewbox.make("digits", reward=build({"type": "python", "function": "judges:nan"}))
    played = [env.play(env.tasks[0], lambda messages: "{}") for _ in range(2)]
    assert [env.score(one).total for one in played] == [None, None]
    (said,) = [record.getMessage() for record in caplog.records if "nan" in record.getMessage()]
    assert "allowed: None or a number in [0, 1]" in said


def test_train_without_arguments_asks_for_the_config_only(capsys):
    assert train.main([]) == 2
    assert capsys.readouterr().err == "error: the following arguments are required: config; see --help\n"


def test_the_usage_shows_that_overrides_are_optional(capsys):
    with pytest.raises(SystemExit):
        train.main(["--help"])
    assert "config [key.path=value ...]" in " ".join(capsys.readouterr().out.split())


# ---------------------------------------------------------------------- failures of an author's, and of ours
def test_a_failure_of_an_authors_ends_with_2_and_names_its_line_and_the_file_with_the_traceback(workplace, capsys):
    write(workplace, Case("broken", (), {5: "  name: scans:Broken"}))
    assert train.main(["run.yaml"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    source = (workplace / "scans.py").read_text().splitlines()
    line = source.index("        return 1 / 0") + 1
    assert first.endswith(f"scans.py, line {line}: ZeroDivisionError: division by zero")
    log = Path(second.removeprefix("the traceback is in "))
    assert "scans.py" in log.read_text()
    shutil.rmtree(log.parent)


def test_a_failure_of_ours_ends_with_1_and_leaves_its_traceback_in_the_runs_folder(workplace, capsys, monkeypatch):
    def fail(run):
        raise RuntimeError("the outline is\nlost")

    monkeypatch.setattr("viewbox.training.run.Run.execute", fail)
    write(workplace, Case("later", (), {22: "  eval_tasks: 1"}))
    assert train.main(["run.yaml"]) == 1
    first, second = capsys.readouterr().err.splitlines()[-2:]
    assert first == "error: viewbox failed: RuntimeError: the outline is lost"
    assert second == "the traceback is in runs/run-seed0/crash.log"
    assert "in fail" in (workplace / "runs" / "run-seed0" / "crash.log").read_text()


def test_stopping_ends_with_130_and_one_line(workplace, capsys):
    write(workplace, Case("stopped", (), {5: "  name: scans:Stopped"}))
    assert train.main(["run.yaml", "--dry-run"]) == 130
    assert capsys.readouterr().err == "stopped\n"


# ---------------------------------------------------------------------- as a user types it
@pytest.mark.parametrize(("name", "lines"), [("digit", 1), ("scans:Broken", 2)])
def test_the_installed_command_ends_the_same_way(workplace, name, lines):
    write(workplace, Case("typed", (), {5: f"  name: {name}"}))
    command = [Path(sys.executable).with_name("viewbox"), "train", "run.yaml", "--dry-run"]
    found, said = forks.start_script(*command, folder=workplace, TMPDIR=str(workplace)).wait()
    assert found == 2
    assert said.startswith("error: ")
    assert "Traceback" not in said
    assert said.count("\n") == lines


@pytest.mark.parametrize("arguments", [["trian"], ["view"], ["view", "nowhere", "--out"]])
def test_a_command_that_is_mistyped_ends_with_2_and_no_traceback(monkeypatch, capsys, arguments):
    monkeypatch.setattr(sys, "argv", ["viewbox", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert len(said.splitlines()) < 10
