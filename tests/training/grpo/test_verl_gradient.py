"""verl's trainer against ours: its gradient on the same episodes, and its checkpoint, recorded by `make test-verl`."""

import asyncio
import json
import os
from pathlib import Path

import pytest
import torch

import viewbox
from tests.support.verl.rows import read_rows
from viewbox.configs import schema
from viewbox.rollouts.job import build_job, create_rollout_folder, open_session
from viewbox.training.grpo import groups
from viewbox.training.grpo.batch import add_pixels, build_model_inputs, collate
from viewbox.training.plan import Plan
from viewbox.training.resume import RunLocation
from viewbox.training.run import Run

RECORDED = Path(os.environ.get("VERL_RECORDED", "build/verl")).resolve()
UPDATES = sorted(RECORDED.glob("*/record/update_*_rank_0.pt"))
EPSILON = 1e-6  # verl adds it to a group's deviation (`core_algos.py`), TRL and viewbox 1e-4
pytestmark = [
    pytest.mark.slow, pytest.mark.skipif(not UPDATES, reason="make test-verl records what verl's trainer does"),
]  # fmt: skip


def read_episodes(record, step):
    """The episodes of a step, group by group; also those that a fault ended, which verl leaves out."""
    episodes, found = list(viewbox.load(str(record / "episodes"), tokens=True)), {}
    lines = [json.loads(line) for line in (record / "groups.jsonl").read_text().splitlines()]
    assert len(episodes) == len(lines)
    for line, episode in zip(lines, episodes, strict=True):
        if line["step"] == step:
            found.setdefault(line["uid"], []).append(episode)
    return [episode for group in found.values() for episode in group], len(next(iter(found.values())))


def compute_advantages(rewards, size):
    """As verl does, which knows no group of equal rewards: there a rounding error of the mean becomes up to 0.1."""
    found = torch.zeros_like(rewards)
    for group, own in zip(rewards.split(size), found.split(size), strict=True):
        kept = group[~group.isnan()]
        own[~group.isnan()] = (kept - kept.mean()) / (kept.std() + EPSILON)
    return found


@pytest.fixture(params=UPDATES, ids=lambda path: f"{path.parts[-3]}, update {path.name.split('_')[1]}")
def update(request, tmp_path, monkeypatch):
    """What each rank had and made of it, the episodes, and our gradient of them from the same weights."""
    record, step = request.param.parent, int(request.param.name.split("_")[1])
    ranks = [torch.load(path, weights_only=False) for path in sorted(record.glob(f"update_{step}_rank_*.pt"))]
    episodes, size = read_episodes(record, step)
    changes = [f"train.per_device_train_batch_size={len(episodes)}", f"train.num_generations={size}"]
    # Several updates of a batch: it has log-probs from before the first one, and importance weights, as verl's has
    changes += ["train.num_iterations=2", "train.importance_sampling_cap=2.0"]
    config = schema.load(str(record.parent / "run" / "viewbox.yaml"), changes)
    trainer = Run(Plan(config), RunLocation(tmp_path, None)).build_grpo_trainer()
    missing, unknown = trainer.model.load_state_dict(ranks[0]["before"], strict=False)
    assert not unknown
    assert set(missing) <= {"lm_head.weight"}  # tied
    monkeypatch.setattr(groups, "EPSILON", EPSILON)

    def compare_advantages(episodes, rewards):
        ours, theirs = groups.group_advantages(rewards, size, "group"), compute_advantages(rewards, size)
        assert (ours - theirs)[ours != 0].abs().max() < 1e-6
        return theirs[:, None]

    trainer.compute_advantages = compare_advantages
    trainer._play_tasks = lambda tasks: episodes
    trainer.player._writer = None
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    batch = trainer._generate_and_score_completions([{"task": 0, "prompt": ""}] * len(episodes))
    trainer._compute_loss(trainer.model, batch).backward()
    gradient = {name: value.grad for name, value in trainer.model.named_parameters() if value.grad is not None}
    return ranks, episodes, gradient, trainer


def test_vllm_sampled_with_the_weights_before_the_update(update):
    """Its log-probs are those of a plain forward in which tokens that no reply may have share no probability."""
    _, episodes, _, trainer = update
    tokens, gaps = trainer.tokens, []
    banned = sorted({*tokens.never_sampled, tokens.image_id, trainer.model.config.video_token_id})
    for episode in (episode for episode in episodes if not episode.is_fault):
        own = episode.tokens
        inputs = build_model_inputs(add_pixels(collate([own], tokens), [own], tokens))
        with torch.no_grad():
            logps = trainer.model(**inputs).logits[0, len(own.prompt_ids) - 1 : -1].float().log_softmax(-1)
        share = logps[:, banned].logsumexp(-1).exp()
        plain = logps.gather(1, torch.tensor(own.completion_ids)[:, None])[:, 0] - torch.log1p(-share)
        gaps.append((torch.tensor(own.logprobs) - plain)[torch.tensor(own.mask).bool()].abs())
    print(json.dumps({"largest gap of a log-prob": torch.cat(gaps).max().item()}))
    assert torch.cat(gaps).max() < 5e-5  # as for vLLM by itself: tests/vllm


def test_the_gradient_is_that_of_our_trainer(update):
    ranks, episodes, ours, _ = update
    for rank in ranks:
        theirs = rank["gradient"]
        assert theirs.keys() == ours.keys()
        largest = max(value.abs().max().item() for value in theirs.values())
        gap = max((theirs[name] - ours[name]).abs().max().item() for name in ours)
        print(json.dumps({"episodes": len(episodes), "largest": largest, "gap": gap, "relative": gap / largest}))
        assert largest > 1e-3
        assert (
            gap <= 1e-5 * largest
        )  # float32 sums in another order, of terms that cancel: 5e-7 to 2.4e-6 in ten updates


def test_an_episode_that_a_fault_ended_is_no_row(update):
    ranks, episodes, *_ = update
    own = [(*e.tokens.prompt_ids, *e.tokens.completion_ids) for e in episodes if not e.is_fault]
    assert sorted(ids for rank in ranks for ids in read_rows(rank)) == sorted(own)


@pytest.mark.parametrize("folder", sorted(RECORDED.glob("*/merged")), ids=lambda path: path.parent.name)
def test_the_merged_checkpoint_plays_in_the_precision_of_the_config(folder, tmp_path):
    job = build_job(config="quickstart", model=str(folder), tasks=8)
    assert {value.dtype for value in job.generator.model.parameters()} == {torch.float32}  # the folder says bfloat16
    with open_session(job, create_rollout_folder(job, tmp_path / "played")) as session:
        episodes = asyncio.run(play(session))
    assert [episode.end_reason for episode in episodes].count("answered") > 4


async def play(session):
    return [episode async for episode in session.play()]
