"""Conversations without tokens become, token by token, what an episode with the same messages has recorded."""

import json
from collections import Counter

import pytest
from msgspec.structs import replace
from PIL import Image

from tests.support.runs import on_path, read_steps, run, write_config
from tests.support.tables import each
from viewbox.configs.train_sections import TrainSection
from viewbox.core.messages import to_openai_messages
from viewbox.engines.hf import Settings
from viewbox.engines.hf.engine import HFGenerator
from viewbox.engines.scripted import ScriptedGenerator
from viewbox.envs.digits import Digits, viewer
from viewbox.errors import ConfigError, StoreError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, Message, Scores, Task
from viewbox.rollouts.exchange.conversation import split_images
from viewbox.rollouts.exchange.export import encode_image
from viewbox.rollouts.exchange.parquet import write_parquet
from viewbox.rollouts.exchange.selection import SelectionReport
from viewbox.rollouts.store.reader import load
from viewbox.training.sft.episodes import (
    read_episodes,
    read_transcripts,
    rebuild_messages,
    tokenize_conversation,
    tokenize_episode,
)
from viewbox.training.sft.selection import select_episodes

ENV = Digits(max_turns=4)
ZOOM = viewer.write_zoom(ENV, 2, 0.4, 0.6)
SCRIPTS = {
    "an answer": lambda env, task: [viewer.write_answer(env, task)],
    "a zoom and an answer": lambda env, task: [viewer.write_gold_look(env, task), viewer.write_answer(env, task)],
    "two calls in a reply": lambda env, task: [f"{ZOOM}\n{ZOOM}", viewer.write_answer(env, task)],
    "words, a refused call, all turns": lambda env, task: ["hm", ZOOM.replace("zoom", "zoon"), ZOOM, "no"],
}


def play_script(play, kit, env, script):
    def reply(conversation):
        replies = SCRIPTS[script](env, conversation.task)
        return replies[sum(message.role == "assistant" for message in conversation.messages)]

    return play(env, [env.tasks[i] for i in range(4)], ScriptedGenerator(kit.tokens, reply))


@pytest.mark.parametrize(("script", "boundary"), [*((name, True) for name in SCRIPTS), ("two calls in a reply", False)])
def test_an_episode_without_its_tokens_gets_the_same_ones_again(kit, play, script, boundary):
    env = Digits(max_turns=4, boundary=boundary)
    for episode in play_script(play, kit, env, script):
        assert tokenize_episode(replace(episode, tokens=None), env, kit.tokens) == episode.tokens


def get_runs(tokens, bit):
    runs, last = [], None
    for token, mask in zip(tokens.completion_ids, tokens.mask, strict=True):
        if mask == bit:
            if last != bit:
                runs.append([])
            runs[-1].append(token)
        last = mask
    return runs


def test_the_masks_are_those_of_the_engines_own_episodes(kit, play):
    """A random model's ids are not those a tokenizer makes of its text; everything around its replies is the same."""
    generator = HFGenerator(kit.model(), kit.tokens, Settings(slots=4, max_reply_tokens=12, max_completion_tokens=2000))
    for episode in play(ENV, [ENV.tasks[i] for i in range(4)], generator):
        found = tokenize_episode(replace(episode, tokens=None), ENV, kit.tokens)
        assert found.prompt_ids == episode.tokens.prompt_ids
        replies = [turn.content for turn in episode.turns if turn.role == "assistant"]
        # a control token that it sampled is text in the record, and text is no control token
        assert [kit.tokens.decode(run).replace("< |", "<|") for run in get_runs(found, 1)] == replies
        end = kit.tokens.end_id  # the environment's side writes it after a reply that was cut off
        theirs = [run[1:] if run[0] == end else run for run in get_runs(episode.tokens, 0)]
        assert get_runs(found, 0) == theirs
        assert all(run[-1] == end for run in get_runs(found, 1))
        assert found.images == episode.tokens.images


UNLEARNABLE = [
    ([Message("user", ("?",))], "no message of the assistant"),
    ([Message("assistant", ("!",))], "begins with the assistant"),
    ([Message("user", ("?",)), Message("assistant", ("a " * 500,))], "longer than 100 tokens"),
]


def test_what_cannot_be_learned_from_is_refused_and_control_tokens_in_a_reply_do_not_end_it(qwen3, play):
    for messages, words in UNLEARNABLE:
        with pytest.raises(StoreError, match=words):
            tokenize_conversation(messages, qwen3.tokens, max_completion_tokens=100)
    (episode, *_) = play_script(play, qwen3, ENV, "an answer")
    with pytest.raises(StoreError, match="played with another system prompt than digits has now"):
        tokenize_episode(episode, Digits(max_turns=4, coordinates="pixel"), qwen3.tokens)
    end = qwen3.tokenizer.decode([qwen3.tokens.end_id])
    found = tokenize_conversation([Message("user", ("?",)), Message("assistant", (f"a{end}b",))], qwen3.tokens)
    assert found.completion_ids.count(qwen3.tokens.end_id) == 1
    assert found.mask == (1,) * len(found.mask)


# ---------------------------------------------------------------------- transcripts
def read(path, env=ENV):
    left_out = Counter()
    found = list(read_transcripts(path, max_pixels=env.max_pixels, multiple=env.pixel_multiple, left_out=left_out))
    return found, left_out.total()


def test_a_transcript_of_an_episode_has_the_tokens_of_the_episode(qwen3, play, tmp_path):
    episodes = play_script(play, qwen3, ENV, "a zoom and an answer")
    lines = [
        {"messages": to_openai_messages(rebuild_messages(episode, ENV)), "tools": [*ENV.tool_schemas]}
        for episode in episodes
    ]
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(line, default=dict) + "\n" for line in lines))
    transcripts, skipped = read(path)
    assert (len(transcripts), skipped) == (4, 0)
    for (_, row), episode in zip(transcripts, episodes, strict=True):
        found = tokenize_conversation(row.messages, qwen3.tokens, tools=row.tools)
        assert found.mask == episode.tokens.mask
        assert found.completion_ids == episode.tokens.completion_ids
        assert [image.width for image in found.images] == [image.width for image in episode.tokens.images]


PICTURE = Image.new("RGB", (40, 30), "red")
URL = ImageRef.of(PICTURE).to_data_url()
TEXT, ANSWER = {"type": "text", "text": "Color?"}, {"role": "assistant", "content": "red"}
USER = {"role": "user", "content": "Color?"}
MARKED = [{"role": "user", "content": "<image>Color?"}, ANSWER]
TURNS = [{"from": "human", "value": "<image>Color?"}, {"from": "gpt", "value": "red"}]


def ask(*parts, **more):
    return {"messages": [{"role": "user", "content": [*parts, TEXT]}, ANSWER], **more}


def say(reply=ANSWER, user=USER, **more):
    return {"messages": [user, reply], **more}


def weigh(**more):
    return {"messages": [USER, ANSWER | more, USER, ANSWER]}


SHOWN = "Shown"  # the red picture, then the question
# fmt: off
ROWS = {  # a row → what is learned from, or words of the refusal; of TRL, LLaMA-Factory, axolotl, OpenAI and ShareGPT
    "a file beside": (ask({"type": "image_url", "image_url": {"url": "red.png"}}), SHOWN),
    "the same as an image": (ask({"type": "image", "image": "red.png"}), SHOWN),
    "a path in a part": (ask({"type": "image", "path": "red.png", "text": None}), SHOWN),
    "a file outside": (ask({"type": "image", "image": "../red.png"}), "leads out of"),
    "TRL": (ask({"type": "image"}, images=["red.png"]), SHOWN),
    "datasets": (ask({"type": "image", "text": None}, images=[{"bytes": None, "path": "red.png"}]), SHOWN),
    "datasets as JSON": ({"messages": MARKED, "images": [{"bytes": URL.partition(",")[2], "path": None}]}, SHOWN),
    "LLaMA-Factory": ({"messages": MARKED, "images": ["red.png"], "videos": []}, SHOWN),
    "one image": ({"messages": MARKED, "image": URL}, SHOWN),
    "ShareGPT": ({"conversations": TURNS, "image": "red.png"}, SHOWN),
    "ShareGPT with content": ({"messages": [{"from": "human", "content": "Color?"}, {"from": "gpt", "content": "red"}]},
        "red"),
    "ShareGPT without a value": ({"messages": [{"from": "human"}, {"from": "gpt", "value": "red"}]}, 'without "value"'),
    "more marks": ({"messages": MARKED, "images": []}, "<image>, without images"),
    "fewer marks": (say(images=["red.png"]), "images: 1 for 0 marks"),
    "other marks": (ask({"type": "image"}, {"type": "image"}, images=["red.png"]), "images: 1 for 2 marks"),
    "an address": ({"messages": MARKED, "image": "https://127.0.0.1/red.png"}, "is not fetched"),
    "a picture of a reply": (say({"role": "assistant", "content": [{"type": "image", "image": URL}]}), "shows a pict"),
    "videos": (say(videos=["a.mp4"]), "videos: not read"),
    "no messages": ({}, 'allowed: an object with a list of "messages"'),
    "a completion": ({"prompt": "Color?", "completion": "red"}, "given: completion, prompt"),
    "a pair": (say(chosen=[ANSWER], rejected=[ANSWER]), "chosen, rejected: not read"),
    "an unknown key": (say(picture_of_case="red.png"), "picture_of_case: not read"),
    "an unknown key of a message": (say(ANSWER | {"mask": 0}), "messages.mask: not read"),
    "sound": (say(ANSWER | {"audio": {"id": "a"}}), "messages.audio: not read"),
    "two replies in one": (say(ANSWER | {"refusal": "no"}), "messages.refusal: not read"),
    "a call of another form": (say({"role": "assistant", "tool_calls": [{"name": "zoom"}]}), "tool_calls is"),
    "labels": (say(id=1, source="x", split=None), "red"),
    "half a weight": (weigh(weight=0.5), "messages.weight = 0.5 of the assistant; allowed: 0"),
    "a weight of the user": (say(user=USER | {"train": True}), "messages.train = True of the user"),
    "no weight": (say(ANSWER | {"weight": 0}), "no message of the assistant to learn from"),
    **{key: (weigh(**{key: value}), [0, 1]) for key, value in (("weight", 0), ("train", False), ("train_on_turn",
        False), ("loss", 0.0))},
    "every weight": (weigh(weight=1), [1, 1]), "a system message beside": (say(system="Look."), "Look."),
    "tools as text": (say(tools=json.dumps([{"type": "function", "function": {"name": "zoom"}}])), '"zoom"'),
}
# fmt: on


def learn(tokens, path):
    """What is learned from a file: one conversation, or why it is left out."""
    printed = []
    episodes = read_episodes(str(path), ENV, tokens, 2000, printed.append)
    return episodes[0].tokens if episodes else "\n".join(printed)


@each("name", [*ROWS])
def test_what_a_row_holds_is_learned_from_or_named(qwen3, tmp_path, name):
    (tmp_path / "inner").mkdir()
    for folder in (tmp_path, tmp_path / "inner"):
        PICTURE.save(folder / "red.png")
    row, right = ROWS[name]
    path = tmp_path / "inner" / "chats.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(row).encode())  # as Windows' editors begin a file
    found = learn(qwen3.tokens, path)
    if right == SHOWN:
        message = Message("user", (ImageRef.of(PICTURE), "Color?"))
        shown = tokenize_conversation([message, Message("assistant", ("red",))], qwen3.tokens)
        assert (found.completion_ids, found.mask) == (shown.completion_ids, shown.mask)
        assert qwen3.tokenizer.decode(found.prompt_ids).index("<|vision_end|>Color?") > 0
        assert found.images[0].open().getpixel((0, 0)) == (255, 0, 0)
    elif isinstance(right, list):
        reply = [*qwen3.tokenizer("red")["input_ids"], qwen3.tokens.end_id]
        assert get_runs(found, 1) == [reply] * sum(right)
        assert (found.mask[: len(reply)] == (1,) * len(reply)) == right[0]
    else:
        assert not isinstance(found, str) or "(line 1: " in found
        text = found if isinstance(found, str) else qwen3.tokenizer.decode([*found.prompt_ids, *found.completion_ids])
        assert right in text


def test_what_is_not_learned_from_is_said(qwen3, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps(say(ANSWER | {"reasoning_content": "It glows."}, source="x")))
    printed = []
    read_episodes(str(tmp_path / "a.jsonl"), ENV, qwen3.tokens, 2000, printed.append)
    assert [one.rpartition("not learned from: ")[2] for one in printed] == [
        "1 (source)",
        "1 (thinking of replies: reasoning_content)",
    ]


def test_a_table_of_our_own_export_is_learned_from(qwen3, tmp_path):
    messages, images = split_images([Message("user", (ImageRef.of(PICTURE), "Color?")), Message("assistant", ("red",))])
    write_parquet([{"messages": messages, "images": [*map(encode_image, images)]}], "sft", tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text(json.dumps({"messages": MARKED, "image": URL}))
    assert learn(qwen3.tokens, tmp_path / "a.parquet") == learn(qwen3.tokens, tmp_path / "b.jsonl")


# ---------------------------------------------------------------------- which episodes are learned from
def episode(task, total, end="answered"):
    return Episode(Task(task), end_reason=end, scores=Scores(total))


EPISODES = [
    episode("a", 0.2), episode("a", 0.9), episode("b", None, "error"), episode("a", 0.9, "max_turns"),
    episode("b", 0.0), episode("c", None),
]  # fmt: skip


def select(report, **settings):
    return select_episodes(EPISODES, TrainSection(method="sft", **settings), report)


@each("settings, kept", [
    ({}, [0, 1, 3, 4, 5]),  # a fault is never learned from
    ({"where": "scores.total>=0.9"}, [1, 3]), ({"where": ["scores.total>=0.9", "end_reason=answered"]}, [1]),
    ({"where": "end_reason=max_turns", "best_of_group": True}, [3]),  # conditions come before the best
])  # fmt: skip
def test_what_is_kept_meets_every_condition(settings, kept):
    assert select(SelectionReport("x"), **settings) == [EPISODES[k] for k in kept]


def test_the_best_of_a_task_is_the_first_of_its_highest_scores_and_if_nothing_is_left_the_counts_say_why():
    report, nothing = SelectionReport("x"), SelectionReport("x")
    assert select(report, best_of_group=True) == [EPISODES[1], EPISODES[4]]
    reasons = {"a fault ended them": 1, "without a score": 1, "not the best of their task": 2}
    assert (dict(report.left_out), report.kept) == (reasons, 2)
    with pytest.raises(ConfigError, match=r"train\.where 'scores\.totl>1': unknown field of scores 'totl'"):
        select(report, where="scores.totl>1")
    assert select(nothing, where="scores.total>2") == []
    assert "x: 0 of 6 episodes; left out: 5 (train.where scores.total>2), 1 (a fault" in nothing.describe()


def test_a_policy_learns_from_its_own_best_episodes_in_three_commands(
    viewbox, tmp_path, tiny_folder, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    with on_path(tmp_path):
        path = write_config(tmp_path, tiny_folder, log={"eval_tasks": 0})
        few = ("--tasks", 6, "--temperature", 1.0)
        assert viewbox("rollout", "--config", path, *few, "--group", 4, "--out", "played")[0] == 0
        played = list(load("played"))
        best = {one.task.id: max(e.scores.total for e in played if e.task.id == one.task.id) for one in played}
        least = sorted(best.values())[2]  # half of the tasks or more
        choice = ("--where", f"reward>={least}", "--best", 1, "--per-task")
        assert viewbox("export", "played", "--to", "run", *choice, "--out", "kept")[0] == 0
        kept = {one.task.id: one.scores.total for one in load("kept")}
        assert (len(played), kept) == (24, {task: total for task, total in best.items() if total >= least})
        sft = (
            "train={method: sft, episodes: kept, max_steps: 4, per_device_train_batch_size: 3, learning_rate: 0.01}",
        )
        losses = [line["loss"] for line in read_steps(run(path, *sft))]
        run(path, *sft, "train.where=scores.total>2", code=2)
        assert f"kept: 0 of {len(kept)} episodes; left out: " in capsys.readouterr().err
    assert losses[-1] < losses[0]
