"""The adapter for inspect-ai, through its own `eval`: logs with images, native calls, limits, failures, the command."""

import importlib
import json
import math
import os
import subprocess
import sys
import time
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

inspect_ai = pytest.importorskip("inspect_ai")

from inspect_ai.log import read_eval_log  # noqa: E402
from inspect_ai.model import ModelOutput, ModelUsage, get_model  # noqa: E402
from inspect_ai.tool import ToolCall  # noqa: E402

from tests.support.everywhere import SCRIPTS, Case  # noqa: E402
from tests.support.tables import each  # noqa: E402
from viewbox.envs.digits import Digits  # noqa: E402
from viewbox.errors import ConfigError  # noqa: E402
from viewbox.integrations import inspect_ai as adapter  # noqa: E402
from viewbox.integrations.inspect_ai import STORE, build_task, check_provider  # noqa: E402
from viewbox.records import Episode  # noqa: E402

SETTINGS = {"num_tasks": 4, "max_turns": 3}
ENV = Digits(**SETTINGS)
ZOOM = {"factor": 4, "center": [500, 500]}


def call(*given, parse_error=None):
    """A reply with native calls."""
    output = ModelOutput.from_content("mockllm", "")
    output.choices[0].message.tool_calls = [
        ToolCall(id=f"c{number}", function=name, arguments=arguments, parse_error=parse_error)
        for number, (name, arguments) in enumerate(given)
    ]
    output.choices[0].stop_reason = "tool_calls"
    return output


def evaluate(folder, reply, *, env=None, **options):
    """The log of an evaluation; `reply(messages, tools, choice)` gives a text or an output of the model."""

    def answer(messages, tools, choice, config):
        said = reply(messages, tools, choice)
        output = ModelOutput.from_content("mockllm", said) if isinstance(said, str) else said
        output.usage = ModelUsage(output_tokens=10, total_tokens=10)
        return output

    model = get_model("mockllm/model", custom_outputs=answer, memoize=False)
    task = build_task(env or "digits", None if env else SETTINGS, limit=3)
    given = {"log_dir": str(folder), "display": "none", "log_format": "json"} | options
    (log,) = inspect_ai.eval(task, model=model, **given)
    return log


def count_replies(messages):
    return sum(message.role == "assistant" for message in messages)


def look_then_answer(messages, tools, choice):
    return '{"label": "one", "bbox": [0, 0, 500, 500]}' if count_replies(messages) else call(("zoom", ZOOM))


def read_episode(sample):
    return Episode.from_dict(sample.store[STORE])


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return evaluate(tmp_path_factory.mktemp("log"), look_then_answer)


def test_the_log_holds_the_conversation_with_its_images(log):
    assert log.status == "success"
    read = read_eval_log(log.location, resolve_attachments=True)
    for sample in read.samples:
        assert [message.role for message in sample.messages] == [
            "system", "user", "assistant", "tool", "user", "assistant",
        ]  # fmt: skip
        images = [part.image for message in sample.messages for part in message.content if not isinstance(part, str)
                  and part.type == "image"]  # fmt: skip
        assert len(images) == 2
        assert all(image.startswith("data:image/png;base64,") for image in images)
        assert sample.messages[3].tool_call_id == sample.messages[2].tool_calls[0].id


def test_the_score_is_that_of_the_environment_with_its_components_and_scoring_again_reads_the_log_alone(log):
    for sample in log.samples:
        episode, score = read_episode(sample), sample.scores["reward"]
        assert episode.end_reason == score.metadata["end_reason"] == "answered"
        assert score.value == ENV.score(episode).total
        assert set(score.metadata["components"]) == {"label", "box"}
        assert json.loads(score.answer)["label"] == "one"
    assert set(log.results.scores[0].metrics) == {"mean", "stderr"}
    assert "data:image" not in json.dumps([sample.store for sample in log.samples])
    again = inspect_ai.score(log, adapter.reward("digits", SETTINGS), action="overwrite", display="none")
    for before, after in zip(log.samples, again.samples, strict=True):
        assert after.scores["reward"].value == before.scores["reward"].value


def test_no_right_answer_reaches_the_model_and_tools_are_offered_natively_also_on_the_last_turn(tmp_path):
    seen, offered = [], []

    def reply(messages, tools, choice):
        seen.append("".join(message.text for message in messages))
        offered.append(([tool.name for tool in tools], choice))
        return call(("zoom", ZOOM))

    log = evaluate(tmp_path, reply)
    assert all(sample.target for sample in log.samples)
    assert not any(sample.target in text or json.dumps(task.reference["bbox"]) in text
                   for sample, task in zip(log.samples, ENV.tasks, strict=False) for text in seen)  # fmt: skip
    assert offered == [(["zoom"], "auto")] * 9
    assert {read_episode(sample).end_reason for sample in log.samples} == {"max_turns"}


def test_calls_that_fail_and_arguments_that_are_no_json_are_answered(tmp_path):
    cut = call(("zoom", {"factor": '{"factor": 2,'}), parse_error="no JSON")
    replies = [call(("zom", {}), ("zoom", {"factor": "x"})), cut, "[]"]
    log = evaluate(tmp_path, lambda messages, tools, choice: replies[count_replies(messages)])
    episode = read_episode(log.samples[0])
    results = [result for turn in episode.turns for result in turn.tool_results]
    assert len(results) == 3
    assert not any(result.success for result in results)
    assert episode.end_reason == "max_turns"


LIMITS = [({"message_limit": 4}, "max_turns"), ({"token_limit": 5}, "max_tokens"), ({"time_limit": 1}, "timeout")]


@pytest.mark.parametrize(("limit", "end"), LIMITS)
def test_a_limit_of_inspect_ends_the_episode_by_name(tmp_path, limit, end):
    def reply(messages, tools, choice):
        if "time_limit" in limit and count_replies(messages):
            time.sleep(1.2)  # the whole event loop waits; then the limit is noticed
        return call(("zoom", ZOOM))

    log = evaluate(tmp_path, reply, max_samples=1, **limit)
    assert log.status == "success"
    for sample in log.samples:
        assert read_episode(sample).end_reason == end
        score = sample.scores["reward"].value
        assert math.isnan(score) if end == "timeout" else score == 0.0  # a timeout says nothing about the policy


def test_a_model_that_fails_costs_its_sample(tmp_path):
    def reply(messages, tools, choice):
        if ENV.tasks[1].id in failing:
            failing.clear()
            raise RuntimeError("the model is gone")
        return '{"label": "one", "bbox": [0, 0, 500, 500]}'

    failing = {ENV.tasks[1].id}
    log = evaluate(tmp_path, reply, fail_on_error=False, max_samples=1)
    broken = [sample for sample in log.samples if sample.error]
    assert len(log.samples) == 3
    assert len(broken) == 1
    assert read_episode(broken[0]).end_reason == "error"


class Kept(Digits):
    name = "kept"
    restricted = True


def test_restricted_images_go_to_no_provider_elsewhere_and_the_package_names_its_tasks():
    env = Kept()
    check_provider(env, get_model("mockllm/model"))
    elsewhere = get_model("mockllm/model", base_url="https://models.example/v1", memoize=False)
    with pytest.raises(ConfigError, match=r"inspect-ai would send its images to https://models\.example/v1"):
        check_provider(env, elsewhere)
    check_provider(Digits(), elsewhere)
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    (module,) = project["entry-points"]["inspect_ai"].values()
    assert callable(importlib.import_module(module).play)


@each("given, words", [
    ({"environment": "digit"}, "unknown environment 'digit'"), ({"environment": "digits", "settings": {"max_turn": 3}},
    "max_turn"), ({"environment": "digits", "tool_images": "both"}, "tool_images: 'both'; allowed: tool, user"),
    ({"environment": "digits", "limit": 0}, "limit: 0; allowed: at least 1"),
])  # fmt: skip
def test_what_cannot_be_played_is_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        build_task(**given)


def test_the_command_of_inspect_plays_the_task_and_its_log_is_read(tmp_path):
    if int(version("openai").partition(".")[0]) < 3:
        pytest.skip("inspect-ai's OpenAI provider needs openai 3.4: `make test-adapters` has it")
    case = Case(list(SCRIPTS)[:4])
    given = ["-T", "environment=digits", "-T", f"settings={json.dumps(case.settings)}", "--display", "none"]
    command = [sys.executable, "-m", "inspect_ai", "eval", "viewbox/play", *given, "--log-dir", "logs"]
    with case.serve() as server:
        command += ["--model", "openai-api/local/scripted", "--model-base-url", server.url]
        environment = os.environ | {"LOCAL_API_KEY": "none"}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (tmp_path / "logs").glob("*.eval")
    log = read_eval_log(str(file))
    assert (log.status, log.eval.task_args["environment"]) == ("success", "digits")
    assert [read_episode(sample).end_reason for sample in log.samples] == ["answered"] * 4
