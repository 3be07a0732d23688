"""The gradient of verl's trainer is that of ours on the same episodes. `make test-verl` records the former."""

import json
import os
from pathlib import Path

import pytest
import torch

import viewbox
from viewbox.configs import schema
from viewbox.training.grpo import groups
from viewbox.training.resume import RunLocation
from viewbox.training.run import Run

RECORDED = Path(os.environ.get("VERL_RECORDED", "build/verl")).resolve()
RUNS = sorted(path.parent for path in RECORDED.glob("*/record"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RUNS, reason="make test-verl records what verl's trainer did"),
]


def read_groups(record, step):
    """The episodes of an update, group by group; also those that a fault ended, which verl leaves out."""
    lines = [json.loads(line) for line in (record / "groups.jsonl").read_text().splitlines()]
    episodes = list(viewbox.load(str(record / "episodes"), tokens=True))
    assert len(episodes) == len(lines)
    found = {}
    for line in lines:
        if line["step"] == step:
            found.setdefault(line["uid"], []).append(episodes[line["number"] - 1])
    return [episode for group in found.values() for episode in group]


@pytest.fixture(
    params=[(run, step) for run in RUNS for step in (1, 2)], ids=lambda given: f"{given[0].name}-{given[1]}"
)
def update(request, tmp_path, monkeypatch):
    """What verl had before an update and made of it, by rank; and our gradient of the episodes from the same weights."""
    run, step = request.param
    ranks = [torch.load(path, weights_only=False) for path in sorted(run.glob(f"record/update_{step}_rank_*.pt"))]
    if not ranks:
        pytest.skip("the run ended before this update")
    episodes = read_groups(run / "record", step)
    # `num_iterations=2`: the batch has importance weights, as verl's has
    changes = [
        f"train.per_device_train_batch_size={len(episodes)}",
        "train.num_iterations=2",
        "train.importance_sampling_cap=2.0",
    ]
    trainer = Run(
        schema.load(str(run / "run" / "viewbox.yaml"), changes), RunLocation(tmp_path, None)
    ).build_grpo_trainer()
    missing, unknown = trainer.model.load_state_dict(ranks[0]["before"], strict=False)
    assert not unknown
    assert set(missing) <= {"lm_head.weight"}  # tied
    monkeypatch.setattr(groups, "_EPSILON", 1e-6)  # verl's
    trainer._play_tasks = lambda tasks: episodes
    trainer.player._writer = None
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    batch = trainer._generate_and_score_completions([{"task": 0, "prompt": ""}] * len(episodes))
    loss = trainer._compute_loss(trainer.model, batch)
    loss.backward()
    gradient = {name: value.grad for name, value in trainer.model.named_parameters() if value.grad is not None}
    return ranks, episodes, gradient


def test_the_gradient_is_that_of_our_trainer(update, record_property):
    ranks, episodes, ours = update
    theirs = ranks[0]["gradient"]
    assert theirs.keys() == ours.keys()
    largest = max(value.abs().max() for value in theirs.values())
    gap = max((theirs[name] - ours[name]).abs().max() for name in ours)
    print({"largest": float(largest), "gap": float(gap), "relative": float(gap / largest), "episodes": len(episodes)})
    assert largest > 1e-3
    assert gap <= 2e-6 * largest


def test_an_episode_that_a_fault_ended_is_no_row(update):
    ranks, episodes, _ = update
    rows = [tuple(ids.tolist()) for rank in ranks for ids in rank["given"]["input_ids"]]
    own = [(*e.tokens.prompt_ids, *e.tokens.completion_ids) for e in episodes if not e.is_fault]
    assert sorted(rows) == sorted(own)
