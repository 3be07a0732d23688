"""The published package as prime-rl plays it: verifiers' own `TrainClient`, and a server that speaks its wire."""

import asyncio
import base64
import io
import json
import sys

import pytest
from PIL import Image
from transformers import AutoProcessor, AutoTokenizer

from tests.integrations.test_verifiers import traces
from tests.support.publishing import leave_out_check
from tests.support.servers import serve
from tests.support.verifiers_command import run_command
from viewbox import assets
from viewbox.configs.sections import ModelSection
from viewbox.engines.hf import loading
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.scripted import ScriptedGenerator
from viewbox.envs.digits import Digits, viewer
from viewbox.images.ref import ImageRef
from viewbox.publish import publish
from viewbox.rollouts.exchange.importing import import_file
from viewbox.rollouts.play import play_many
from viewbox.rollouts.store.reader import load

TASKS = 3
SETTINGS = {"split": "test", "num_tasks": TASKS, "max_turns": 4}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The shipped model's folder with the two tokens that verifiers' renderer of Qwen3-VL looks for."""
    folder = tmp_path_factory.mktemp("model")
    source = assets.resolve_model_path("package:tiny_viewer")
    AutoProcessor.from_pretrained(source).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.save_pretrained(folder)
    config, _ = loading.load_processor(ModelSection(name="package:tiny_viewer"))
    config.get_text_config().vocab_size = len(tokenizer)
    config.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tokens(model):
    config, processor = loading.load_processor(ModelSection(name=str(model)))
    return ChatTokens(processor, config)


class TrainServer:
    """Speaks `/inference/v1/generate`: expands one placeholder an image, and says what the script says."""

    def __init__(self, env, tokens):
        self.tokens, self.requests = tokens, {}
        self.scripts = {}
        for number in range(TASKS):
            looks = [viewer.write_zoom(env, 2, 0.3, 0.6), viewer.write_gold_look(env, env.tasks[number])][:number]
            image = env.reset(env.tasks[number], seed=0).messages[-1].images[0]
            self.scripts[image.hash] = [*looks, viewer.write_answer(env, env.tasks[number])]

    def list_models(self, body):
        return {"object": "list", "data": [{"id": "policy", "object": "model", "max_model_len": 4096}]}

    def generate(self, body, number):
        parts = body.get("content_parts") or []
        images = [ImageRef.of(Image.open(io.BytesIO(base64.b64decode(one["url"].split(",", 1)[1])))) for one in parts]
        pad = self.tokens.image_id
        assert body["token_ids"].count(pad) == len(images)
        counts = iter([self.tokens.count_image_tokens(image) for image in images])
        ids = [i for one in body["token_ids"] for i in ([one] * next(counts) if one == pad else [one])]
        sampled = self.tokens.encode_reply(self.scripts[images[0].hash][len(images) - 1])
        self.requests.setdefault(images[0].hash, []).append((ids, images, sampled))
        content = [
            {"token": f"token_id:{token}", "logprob": -0.001 * (place + 1), "bytes": None, "top_logprobs": []}
            for place, token in enumerate(sampled)
        ]
        choice = {"index": 0, "finish_reason": "stop", "token_ids": sampled, "logprobs": {"content": content}}
        about = {"request_id": "r", "model": body["model"], "created": 1, "usage": None, "choices": [choice]}
        return {**about, "prompt_token_ids": ids, "mm_placeholders": {"image": self.find_placeholders(ids)}}

    def find_placeholders(self, ids):
        pad = self.tokens.image_id
        starts = [n for n, one in enumerate(ids) if one == pad and ids[n - 1] != pad]
        ends = [n + 1 for n, one in enumerate(ids) if one == pad and ids[n + 1] != pad]
        return [{"offset": start, "length": end - start} for start, end in zip(starts, ends, strict=True)]


@pytest.fixture(scope="module")
def trained(model, tokens, tmp_path_factory):
    """(traces by task number, what the server was sent, our own episodes of the same script, the file of traces)."""
    folder = tmp_path_factory.mktemp("prime")
    env = Digits(**SETTINGS, coordinates="per_mille", reply_format="hermes")
    with pytest.MonkeyPatch.context() as patch:  # the trial in a process of its own takes seconds
        leave_out_check(patch)
        publish("digits", folder / "package", settings=SETTINGS)
    served = TrainServer(env, tokens)
    with serve(served.generate, by_path={"/v1/models": served.list_models}) as server:
        given = ["viewbox-digits", "--model", "policy", "--no-push", "--no-rich", "-n", TASKS, "-o", folder / "out"]
        client = ["--client.type", "train", "--client.base-url", server.url]
        renderer = ["--client.renderer.name", "qwen3-vl", "--client.renderer-model-name", model]
        run_command("vf-eval", *given, *client, *renderer, path=folder / "package", cwd=folder)
    sys.modules.pop("viewbox_digits", None)

    def script(conversation):
        replies = served.scripts[conversation.messages[-1 if len(conversation.messages) < 3 else 1].images[0].hash]
        return replies[sum(message.role == "assistant" for message in conversation.messages)]

    async def play():
        generator = ScriptedGenerator(tokens, script)
        return [episode async for episode in play_many(env, [env.tasks[n] for n in range(TASKS)], generator)]

    episodes = {episode.info["index"]: episode for episode in asyncio.run(play())}
    (saved,) = (folder / "out").rglob("traces.jsonl")
    return traces(folder / "out"), served.requests, episodes, saved


NUMBERS = range(TASKS)  # the policy looks as often as the task's number says


@pytest.mark.parametrize("number", NUMBERS)
def test_an_episode_is_one_branch_whose_tokens_pictures_and_log_probs_are_ours(trained, number):
    found, requests, episodes, _ = trained
    nodes, ours = found[number]["nodes"], episodes[number].tokens
    assert [node.get("parent") for node in nodes] == [None, *range(len(nodes) - 1)]
    turns = ["assistant", "tool"] * number + ["assistant"]
    assert [node["message"]["role"] for node in nodes] == ["system", "user", *turns]
    ids = [token for node in nodes for token in node["token_ids"]]
    mask = [int(bit) for node in nodes for bit in node["mask"] or [False] * len(node["token_ids"])]
    assert ids == [*ours.prompt_ids, *ours.completion_ids]
    assert mask == [0] * len(ours.prompt_ids) + list(ours.mask)
    requested = requests[ours.images[0].hash]
    assert len(requested) == number + 1
    ids, images, sampled = requested[-1]
    assert (*ids, *sampled) == (*ours.prompt_ids, *ours.completion_ids)
    assert [image.hash for image in images] == [image.hash for image in ours.images]
    said = [node for node in nodes if node["message"]["role"] == "assistant"]
    for node, (*_, sampled) in zip(said, requested, strict=True):
        wanted = [-0.001 * (place + 1) for place in range(len(sampled))]
        assert node["logprobs"][-len(sampled) :] == pytest.approx(wanted)


def test_the_reward_is_that_of_scoring_offline(trained, viewbox, tmp_path, monkeypatch):
    found, _, episodes, saved = trained
    monkeypatch.chdir(tmp_path)
    assert import_file(saved, "verifiers", tmp_path / "run").kept == TASKS
    code, out, err = viewbox("score", "run", "--env", "digits", "--format", "json")
    assert code == 0, err
    imported = {episode.task.id: episode for episode in load(tmp_path / "run")}
    rewards = []
    for number in NUMBERS:
        (reward,) = found[number]["rewards"].values()
        rewards.append(reward["score"] * reward["weight"])
        assert rewards[-1] == episodes[number].scores.total
        assert rewards[-1] == imported[episodes[number].task.id].scores.total
    new = json.loads(out)["total"]["new"]
    assert (new["count"], new["mean"]) == (TASKS, pytest.approx(sum(rewards) / TASKS))
