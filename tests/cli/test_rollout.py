"""`viewbox rollout`: what it plays, leaves behind and says of a model, and that nothing is lost however it ends."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

from tests.support import forks
from tests.support.families import save_family
from tests.support.servers import make_completion, make_response, make_script, serve
from tests.support.tables import each
from viewbox import ConfigError, ModelError, load, make
from viewbox.cli import play
from viewbox.configs import schema
from viewbox.envs.digits import Digits, viewer
from viewbox.rewards import build

ENV = Digits()
RIGHT = viewer.write_answer(ENV, ENV.tasks[0])
ZOOM = make_completion("", ("a", "zoom", '{"factor": 2}'))
KEY = "sk-a-very-secret-key"


def looks_then_answers(body, number):
    """One native look, then an answer."""
    return make_completion(RIGHT) if any(message["role"] == "tool" for message in body["messages"]) else ZOOM


@pytest.fixture
def viewbox(viewbox, monkeypatch, tmp_path):
    """Runs `viewbox rollout` in this process, in a folder of its own: (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return partial(viewbox, "rollout")


@pytest.fixture
def right():
    """A server that always answers right."""
    with serve(make_script(make_completion(RIGHT))) as server:
        yield server


def started(*arguments, **settings):
    """The command as a process of its own."""
    line = [sys.executable, "-m", "viewbox", "rollout", *map(str, arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **settings)


def at(server, *more, out=None):
    return ("--env", "digits", "--endpoint", server.url, "--model", "m", *(("--out", out) if out else ()), *more)


def places(folder):
    return Counter((episode.info["index"], episode.info["sample"]) for episode in load(folder / "episodes"))


def wait_for(happens, seconds=60):
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.01)


# ---------------------------------------------------------------------- what it leaves behind
def test_tasks_times_group_are_played_saved_and_summed_up(viewbox, tmp_path):
    with serve(looks_then_answers) as server:
        code, out, _ = viewbox(*at(server, "--tasks", 5, "--group", 2, "env.max_turns=3", "--max-tokens", 50))
    folder = tmp_path / "runs" / "rollout-digits-m"
    assert code == 0
    assert places(folder) == {(i, k): 1 for i in range(5) for k in range(2)}
    assert {episode.end_reason for episode in load(folder / "episodes")} == {"answered"}
    summary = json.loads((folder / "summary.json").read_text())["metrics"]
    assert (summary["tools/rate"], summary["end/answered"]) == (1.0, 1.0)
    assert (folder / "versions.json").is_file()
    assert all(row in out for row in ("10/10", "reward", "label", "box", "tool rate", "answered"))
    assert all(body["max_tokens"] == 50 for body in server.bodies)


def test_the_folder_is_enough_to_score_its_episodes_again(viewbox, tmp_path):
    reward = tmp_path / "half.yaml"
    reward.write_text(
        "model: {name: x}\nenv: {name: digits, noise: 3, eval: {split: test}}\n"
        "reward: {type: exact_match, field: label}\nrollout: {temperature: 0.5}\n"
    )
    with serve(looks_then_answers) as server:
        given = ("--config", reward, "--held-out", "--tasks", 4, "--out", "here", "--endpoint", server.url)
        code, _, _ = viewbox(*given, "--model", "Qwen/Qwen2.5-VL-3B", "env.max_pixels=4096")
    assert code == 0
    saved = schema.load("here/config.yaml")
    expected = {"noise": 3, "split": "test", "max_pixels": 4096, "coordinates": "pixel", "pixel_multiple": 28}
    assert saved.env.settings == {**expected, "reply_format": "native"}
    env = make(saved.env.name, reward=build(saved.reward), **saved.env.settings)
    episodes = list(load("here/episodes"))
    assert [env.score(episode) for episode in episodes] == [episode.scores for episode in episodes]
    assert all(episode.task.id.startswith("digits-test-") for episode in episodes)
    assert all(body["temperature"] == 0.5 and "max_tokens" not in body for body in server.bodies)


def test_how_tokens_are_drawn_and_extra_fields_reach_the_endpoint_as_far_as_they_are_given(viewbox, right):
    rollout = "{repetition_penalty: 1.1, top_k: 3, stop: [a]}"
    Path("run.yaml").write_text(f"model: {{name: m}}\nenv: {{name: digits}}\nrollout: {rollout}\n")
    given = ("--config", "run.yaml", "--tasks", 1, "rollout.top_p=0.9", "rollout.top_k=7", "rollout.stop=[b, c]")
    assert viewbox(*given, "--endpoint", right.url, "--out", "o")[0] == 0
    extra = [f"endpoint.extra.{field}" for field in ("top_k=5", "seed=null", "a.b=1e-3")]
    assert viewbox(*at(right, "--tasks", 1, "endpoint.native_tools=false", *extra))[0] == 0
    drawn, bare = right.bodies
    settings = {name: drawn[name] for name in drawn.keys() - {"model", "messages", "seed", "tools"}}
    assert settings == {"repetition_penalty": 1.1, "top_k": 7, "top_p": 0.9, "stop": ["b", "c"]}
    assert schema.load("o/config.yaml").rollout.stop == ("b", "c")
    assert bare.keys() == {"model", "messages", "top_k", "a"}
    assert (bare["top_k"], bare["a"]) == (5, {"b": 0.001})
    assert "<tools>" in bare["messages"][0]["content"]


BARE = "endpoint.native_tools=false"


@each("given, taught, words", [((BARE,), "json", '{"tool": <function-name>'), ((BARE, "env.reply_format=fenced"),
    "fenced", "```tool"), ((), "native", None)])  # fmt: skip
def test_how_tools_are_taught_is_the_option_then_the_setting_then_the_models_default(
    viewbox, tmp_path, given, taught, words
):
    with serve(make_script(make_completion(RIGHT))) as server:
        viewbox(*at(server, "--tasks", 1, "--model", "google/gemma-3-4b-it", *given, out="o"))
    assert schema.load("o/config.yaml").env.settings["reply_format"] == taught
    (body,) = server.bodies
    assert ("tools" in body) == (words is None)
    assert words is None or words in body["messages"][0]["content"]


def test_the_thinking_tags_of_a_served_model_are_a_setting_of_its_run(viewbox):
    said = make_completion(RIGHT + '◁think▷Or {"label": "one", "bbox": [0, 0, 9, 9]}?◁/think▷')  # else that counts
    kimi = ("--model", "moonshotai/Kimi-VL-A3B-Thinking", "env.coordinates=per_mille")
    with serve(make_script(said)) as server:
        assert viewbox(*at(server, "--tasks", 1, *kimi, out="o"))[0] == 0
    (episode,) = load("o/episodes")
    assert (episode.end_reason, dict(episode.answer)["label"]) == ("answered", ENV.tasks[0].reference["label"])


COMMANDS = """
import json, sys
from viewbox.cli import app
for words in json.loads(sys.argv[1]):
    sys.argv = ["viewbox", *words]
    try: app.main()
    except SystemExit as ended: assert not ended.code, ended.code
print(sorted({"torch", "transformers", "trl", "datasets"} & set(sys.modules)))
"""


def test_against_an_endpoint_and_for_scoring_no_torch_is_loaded(tmp_path, right):
    commands = [["rollout", *map(str, at(right, "--tasks", 2, out="o"))], ["score", "o"]]
    line = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_local_model_plays_without_an_endpoint(viewbox):
    given = ("--env", "digits", "--model", "package:tiny_viewer", "--tasks", 6, "--out", "o", "--max-tokens", 40)
    code, out, _ = viewbox(*given, "env.places=4", "env.margin=0.25", "env.max_turns=3")
    assert code == 0
    episodes = list(load("o/episodes", tokens=True))
    assert len(episodes) == 6
    assert all(sum(episode.tokens.mask) > 0 for episode in episodes)
    assert schema.load("o/config.yaml").env.settings["coordinates"] == "per_mille"
    assert "6/6" in out


# ---------------------------------------------------------------------- going on
def test_the_same_command_plays_only_what_is_missing(viewbox, right):
    for tasks, asked in ((4, 4), (4, 4), (7, 7)):
        code, out, _ = viewbox(*at(right, "--tasks", tasks, out="o"))
        assert (code, len(right.requests)) == (0, asked)
    assert "7/7" in out
    assert places(Path("o")) == {(i, 0): 1 for i in range(7)}


OTHER_SETTINGS = [
    (("env.noise=1",), "env.noise = None, given is 1"), (("--seed", 1), "command.seed = 0, given is 1"),
    (("--group", 2), "command.group = 1, given is 2"), (("--model", "n"), "model.name = 'm', given is 'n'"),
    (("--temperature", 0.5), "rollout.temperature = None, given is 0.5"),
    (("endpoint.tool_images=tool",), "command.tool_images = 'user', given is 'tool'")
]  # fmt: skip


def test_a_folder_is_not_gone_on_with_under_other_settings(viewbox, right):
    viewbox(*at(right, "--tasks", 1, out="o"))
    for more, words in OTHER_SETTINGS:
        code, _, err = viewbox(*at(right, "--tasks", 1, *more, out="o"))
        assert (code, err) == (2, f"error: o: was started with {words}; give the same value, or another --out\n")


def test_a_group_goes_on_with_the_seeds_it_would_have_had(viewbox, right):
    for tasks, out in ((6, "whole"), (2, "parts"), (6, "parts")):
        viewbox(*at(right, "--tasks", tasks, "--group", 2, out=out))
    played = (load(f"{folder}/episodes") for folder in ("whole", "parts"))
    whole, parts = ({(e.info["index"], e.info["sample"]): e.run_config.seed for e in one} for one in played)
    assert whole == parts
    assert len(set(whole.values())) == 12


def test_failed_episodes_are_kept_and_played_again_only_on_request(viewbox):
    with serve(lambda body, n: make_response(400, "full") if n in (1, 3) else make_completion(RIGHT)) as server:
        _, out, _ = viewbox(*at(server, "--tasks", 5, "--concurrency", 1, out="o"))
        assert "2 × HTTP 400: full" in out
        assert "--retry-failed" in out
        viewbox(*at(server, "--tasks", 5, out="o"))
        assert len(server.requests) == 5
        _, out, _ = viewbox(*at(server, "--tasks", 5, "--retry-failed", out="o"))
    assert len(server.requests) == 7
    assert "2 failed episodes are played again" in out
    assert places(Path("o")) == {(i, 0): 1 for i in range(5)}
    assert {episode.end_reason for episode in load("o/episodes")} == {"answered"}
    retried = Path("o/episodes/retried.jsonl").read_text().splitlines()
    assert [json.loads(line)["info"]["error"] for line in retried] == ["HTTP 400: full"] * 2


@pytest.mark.parametrize("moment", [3, pytest.param(70, marks=pytest.mark.nightly)])
def test_a_killed_command_run_again_plays_exactly_what_is_missing(tmp_path, moment):
    folder = tmp_path / "o"
    with serve(lambda body, number: (time.sleep(0.02), looks_then_answers(body, number))[1]) as server:
        given = at(server, "--tasks", 30, "--group", 2, "--concurrency", 4, out=folder)
        process = started(*given, cwd=tmp_path)
        wait_for(lambda: len(server.requests) >= moment)
        process.kill()
        process.communicate()
        before = places(folder)
        pictures = {json.dumps(body["messages"][1]) for body in server.bodies}
        server.requests.clear()
        again = started(*given, cwd=tmp_path)
        assert again.communicate(timeout=120) is not None
        assert again.returncode == 0
        after = places(folder)
        asked = [body for body in server.bodies if len(body["messages"]) == 2]
    assert pictures
    assert after == {(i, k): 1 for i in range(30) for k in range(2)}  # each once, none twice
    assert before.items() <= after.items()
    assert len(asked) == 60 - len(before)
    lines = (folder / "episodes" / "episodes.jsonl").read_bytes().splitlines()
    assert len(lines) == 60
    assert all(json.loads(line) for line in lines)


def test_ctrl_c_keeps_what_has_ended_and_says_how_to_go_on(tmp_path):
    def slowly(body, number):
        time.sleep(0.02 if number < 20 else 30)
        return make_completion(RIGHT)

    folder = tmp_path / "o"
    with serve(slowly) as server:
        process = started(*at(server, "--tasks", 50, "--concurrency", 4, out=folder), cwd=tmp_path)
        lines = folder / "episodes" / "episodes.jsonl"
        wait_for(lambda: lines.is_file() and lines.read_bytes().count(b"\n") == 20)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"interrupted: 20 of 50 episodes are stored; resume with --out {folder}" in said
    assert sum(places(folder).values()) == 20


def test_two_commands_do_not_write_one_folder(viewbox, tmp_path):
    with serve(lambda body, number: time.sleep(30)) as server:
        process = started(*at(server, "--tasks", 1, out=tmp_path / "o"), cwd=tmp_path)
        try:
            wait_for(lambda: server.requests)
            code, _, err = viewbox(*at(server, "--tasks", 1, out="o"))
        finally:
            process.kill()
            process.communicate()
    assert (code, "another process is still writing" in err) == (2, True)


# ---------------------------------------------------------------------- what goes wrong
LOCAL = ("--env", "digits", "--model", "m")
THERE = (*LOCAL, "--endpoint", "http://[::1]")
WRONG = [
    (("--env", "digits"), "--model: is missing"), ((*LOCAL, "--model", "/no/such/folder"), "/no/such/folder"),
    (("--model", "m", "--endpoint", "http://127.0.0.1:1"), "--env: is missing"),
    (("--env", "digit", "--model", "m", "--endpoint", "http://127.0.0.1:1"), "did you mean 'digits'?"),
    ((*LOCAL, "--endpoint", "127.0.0.1:1"), "allowed: http(s)://host"), ((*THERE, "env.noise"), "key.path=value"),
    ((*THERE, "--tasks", 0), "--tasks = 0"), ((*THERE, "--tasks", 10**6), "digits has 100000 tasks"),
    ((*THERE, "--held-out"), "env.eval"), ((*LOCAL, "noise=1"), "unknown section 'noise'"),
    ((*THERE, "rollout.kv_cache_bytes=2GB"),
        "override 'rollout.kv_cache_bytes=2GB': rollout.kv_cache_bytes = 2000000000: applies to a local"),
    ((*LOCAL, "rollout.top_p=1.5"), "override 'rollout.top_p=1.5': rollout.top_p = 1.5; "),
    (("--config", "served.yaml"), "served.yaml, line 3: endpoint.tool_images = 'tols'; allowed: 'tool' or 'user'"),
    ((*LOCAL, "--endpoint", "http://127.0.0.1:9/v1"), "cannot be reached"),
    ((*LOCAL, "train.seed=1"), "allowed: endpoint, env, model, reward, rollout"),
    ((*LOCAL, "endpoint.tool_image=tool"), "did you mean 'tool_images'?"),
    (("--env", "other", "--model", "m", "--config", "quickstart"), "the config's environment is digits")
]  # fmt: skip


def test_what_is_given_wrong_is_said_in_one_message(viewbox, tmp_path):
    served = "endpoint: {url: 'http://[::1]', tool_images: tols}"
    Path("served.yaml").write_text(f"model: {{name: m}}\nenv: {{name: digits}}\n{served}\n")
    for given, words in WRONG:
        code, _, err = viewbox(*given)
        assert (code, err[:7], words in err) == (2, "error: ", True), err
        assert not [*tmp_path.glob("runs/*")]


def test_rows_without_an_answer_are_played_and_not_scored_and_the_run_is_resumed_with_the_defaults(viewbox, tmp_path):
    Image.new("L", (40, 40)).save("a.png")
    Path("d.csv").write_text("id,image,question,answer\n1,a.png,Dark?,yes\n2,a.png,Why?,\n3,a.png,Where?,\n")
    columns = {name: name for name in ("id", "image", "question", "answer")}
    with serve(make_script(make_completion('{"answer": "yes"}'))) as server:
        endpoint = {"url": server.url, "retries": 0}
        env = {"name": "vqa", "data": {"source": "d.csv", "columns": columns}}
        Path("c.yaml").write_text(json.dumps({"model": {"name": "m"}, "endpoint": endpoint, "env": env}))
        given = ("--config", "c.yaml", "--out", "o")
        code, out, _ = viewbox(*given)
        again, other = viewbox(*given), viewbox(*given, "env.on_tool_fault=end")
    assert (code, again[0], other[0]) == (0, 0, 2)
    assert "2 rows without an answer are played, not scored" in out
    assert "answer to 2: yes" in out
    assert {episode.task.id: episode.scores.total for episode in load("o/episodes")} == {"1": 1.0, "2": None, "3": None}
    assert "on_tool_fault" not in Path("o/config.yaml").read_text()  # as in runs begun before it was a setting
    assert "was started with env.on_tool_fault = None, given is 'end'" in other[2]


# ---------------------------------------------------------------------- a real server
@pytest.fixture(scope="module")
def transformers_serve(tmp_path_factory):
    """`transformers serve` on this machine, which loads the shipped model when it is asked for it: its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(sys.executable).with_name("transformers")
    given = ("serve", "--host", "127.0.0.1", "--port", port, "--device", "cpu")
    process = forks.start_script(script, *given, folder=tmp_path_factory.mktemp("serve"), HF_HUB_OFFLINE="1")
    wait_for(lambda: _healthy(port, process), seconds=180)
    yield f"http://127.0.0.1:{port}"
    process.kill()


def _healthy(port, process):
    assert process.status is None, process.output.read_text()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


def test_the_shipped_model_behind_transformers_serve_plays(viewbox, transformers_serve):
    from viewbox.assets import resolve_model_path

    model = resolve_model_path("package:tiny_viewer")
    given = ("--endpoint", transformers_serve, "--model", model, "--config", "quickstart")
    code, out, err = viewbox(*given, "--held-out", "--tasks", 16, "--out", "o", "endpoint.tool_images=tool")
    assert code == 0, out + err
    episodes = list(load("o/episodes"))
    assert places(Path("o")) == {(i, 0): 1 for i in range(16)}
    assert {episode.end_reason for episode in episodes} <= {"answered", "max_turns", "malformed"}
    assert any(episode.tools_used() for episode in episodes)  # every second does; the server makes native calls
    scores = [episode.scores.components for episode in episodes if episode.end_reason == "answered"]
    assert len(scores) >= 8
    assert sum(one["box"] for one in scores) / len(scores) > 0.6


# ---------------------------------------------------------------------- how a model works here
@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_family("llava", tmp_path_factory.mktemp("models") / "llava")


def check(folder, **options):
    play.rollout(check_model=True, model=str(folder), **options)


def read(capsys):
    lines = capsys.readouterr().out.splitlines()
    return {line[:14].strip(): line[14:].strip() for line in lines if not line.startswith("note")}, lines


def test_it_says_how_a_model_plays_how_far_the_engine_differs_and_what_was_not_asked(folder, tmp_path, capsys):
    check(folder)
    found, lines = read(capsys)
    assert found["plays"] == "on the engine's cache (full_attention)"
    assert found["pictures"].startswith("224 x 224: 16 tokens")
    assert found["end of reply"] == "</s> (the chat template writes none)"
    assert found["tool pictures"] == "in a user message"
    assert found["weights"].startswith("float32; engine and the model's own forward differ by ")
    assert any("writes no end token after replies" in line for line in lines)
    shutil.copytree(folder, tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors"))
    check(tmp_path / "bare")
    assert "none in the folder" in read(capsys)[0]["weights"]


def test_a_template_that_drops_pictures_weights_that_are_no_numbers_and_a_server_are_errors(folder, tmp_path):
    path = shutil.copytree(folder, tmp_path / "drops") / "chat_template.jinja"
    path.write_text(path.read_text().replace("{{ '<image>\\n' }}", "{{ '<image>\\n' if messages | length < 3 }}"))
    with pytest.raises(ModelError, match="the chat template drops the image of a tool result"):
        check(tmp_path / "drops")
    path = shutil.copytree(folder, tmp_path / "broken") / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if name.endswith("norm.weight"))
    save_file({**weights, name: weights[name] * float("nan")}, path, {"format": "pt"})
    with pytest.raises(ModelError, match="NaN or infinity"):
        check(tmp_path / "broken")
    with pytest.raises(ConfigError, match="leave out --endpoint"):  # a server has no weights to look at
        check(folder, endpoint="http://127.0.0.1:9/v1")
