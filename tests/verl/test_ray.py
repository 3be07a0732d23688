"""The exported run in ray actors, as verl starts it: its V1 workers, its client and router, and TransferQueue."""

import time
from dataclasses import dataclass

import numpy as np
import pytest
import ray
import torch
import transfer_queue as tq
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.utils.tokenizer import hf_processor, hf_tokenizer
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.router import GlobalRequestLoadBalancer

from tests.support.verl.server import StubServer, compose_trainer, compute_response_logprobs, list_replies

pytestmark = pytest.mark.timeout(2400)  # ray's processes have a low priority: on a busy machine they take minutes
PLANS = ("free", "look", "look twice", "abort")
GROUP, PROMPTS, STEP = 4, 6, 5
LEARNED = GROUP * PROMPTS * 3 // 4  # the others were aborted
FIELDS = (
    *("prompts", "responses", "response_mask", "loss_mask", "rollout_log_probs", "rm_scores", "input_ids"),
    *("position_ids", "multi_modal_inputs", "extra_fields", "num_turns"),
)


@dataclass
class Played:
    """What verl's trainer finds: the server's requests; for "train" and "val" the rows, tags and statuses by key."""

    requests: list
    rows: dict
    tags: dict
    statuses: dict


@pytest.fixture(scope="module")
def played(exported):
    trainer = compose_trainer(
        exported,
        f"actor_rollout_ref.rollout.n={GROUP}",
        "actor_rollout_ref.rollout.agent.num_workers=2",
        "actor_rollout_ref.rollout.full_determinism=True",  # the server sees one request id for an episode
        "transfer_queue.enable=True",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    )
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        tq.init(trainer.transfer_queue)
        server = ray.remote(StubServer).options(max_concurrency=32).remote(str(exported / "model"), PLANS)
        balancer = ray.remote(GlobalRequestLoadBalancer).remote(servers={"stub": server})
        manager = AgentLoopManagerTQ.create(trainer, LLMServerClient(trainer, balancer))
        found = {split: submit(manager, trainer, exported / "model", split) for split in ("train", "val")}
        requests = ray.get(server.get_requests.remote())
        yield Played(requests, *({split: own[k] for split, own in found.items()} for k in range(3)))
    finally:
        tq.close()
        ray.shutdown()


def submit(manager, trainer, model, split):
    """What the trainer does with a batch of prompts (`trainer_base.py`): ({key: row}, {key: tag}, {uid: status})."""
    data = RLHFDataset(trainer.data[f"{split}_files"], hf_tokenizer(model), trainer.data, hf_processor(model), PROMPTS)
    batch = collate_fn([data[number] for number in range(PROMPTS)])
    uids = [f"{split}-{number}" for number in range(PROMPTS)]
    batch["uid"] = np.array(uids, dtype=object)
    batch = tu.get_tensordict(batch)
    tu.assign_non_tensor_data(batch, "global_steps", STEP)
    if split == "val":
        tu.assign_non_tensor_data(batch, "validate", True)
    tags = [{"is_prompt": True, "status": "pending", "global_steps": STEP} for _ in range(PROMPTS)]
    tq.kv_batch_put(keys=uids, partition_id=split, tags=tags)
    manager.generate_sequences(batch)
    statuses = wait_for(uids, split)
    tags = {key: tag for key, tag in tq.kv_list(split)[split].items() if key not in uids}
    data = tq.kv_batch_get(keys=sorted(tags), partition_id=split, select_fields=list(FIELDS))
    return dict(zip(sorted(tags), read_rows(data), strict=True)), tags, statuses


def wait_for(uids, split):
    until = time.monotonic() + 900
    while time.monotonic() < until:
        found = tq.kv_list(split)[split]
        statuses = {uid: found[uid]["status"] for uid in uids if uid in found}
        if len(statuses) == len(uids) and not {"pending", "running"} & set(statuses.values()):
            return statuses
        time.sleep(0.2)
    raise AssertionError(f"not finished: {statuses}")


def read_rows(data):
    for i in range(len(data)):
        row = {}
        for name in data.keys():  # noqa: SIM118  a TensorDict iterates over rows
            value = data[name]
            row[name] = value[i] if isinstance(value, torch.Tensor) else getattr(value[i], "data", value[i])
        yield row


def test_every_group_is_there_without_its_faults(played):
    assert set(played.statuses["train"].values()) == {"finished"}
    assert len(played.rows["train"]) == LEARNED
    for tag in played.tags["train"].values():
        assert (tag["status"], tag["min_global_steps"], tag["max_global_steps"]) == ("success", 7, 7)


def test_ids_mask_and_log_probs_are_those_that_the_server_sampled(played):
    replies = list_replies(played.requests)
    for row in played.rows["train"].values():
        ids, logprobs, _ = replies[tuple(row["input_ids"].tolist())]
        mask = row["response_mask"].bool()
        assert torch.equal(row["input_ids"], torch.cat([row["prompts"], row["responses"]]))
        assert row["responses"][mask].tolist() == ids
        assert torch.allclose(row["rollout_log_probs"][mask], torch.tensor(logprobs).clamp(max=0))
        assert not row["rollout_log_probs"][~mask].any()


def test_the_trainers_forward_gives_the_servers_log_probs_with_up_to_three_images(played, exported):
    server = StubServer(exported / "model")
    images = []
    for row in played.rows["train"].values():
        mask = row["response_mask"].bool()
        images.append(len(row["multi_modal_inputs"]["image_grid_thw"]))
        logprobs = compute_response_logprobs(
            server, row["input_ids"], row["position_ids"], row["multi_modal_inputs"], len(row["responses"])
        )
        assert (logprobs - row["rollout_log_probs"])[mask].abs().max() <= 1e-5
    assert images.count(2) >= 4
    assert images.count(3) >= 4


def test_rewards_stand_on_the_last_token_and_reports_have_the_same_names(played):
    rows = played.rows["train"].values()
    names = [set(row["extra_fields"]["reward_extra_info"]) for row in rows]
    assert all(found == names[0] for found in names)
    assert {"rewards/label/mean", "rewards/box/mean", "end/error"} <= names[0]
    assert any(row["rm_scores"].sum() > 0 for row in rows)
    for row in rows:
        assert not row["rm_scores"][:-1].any()


def test_validation_has_every_episode_also_one_that_a_fault_ended(played):
    rows = played.rows["val"].values()
    assert len(rows) == PROMPTS
    (failed,) = [row for row in rows if row["extra_fields"]["reward_extra_info"]["end/error"]]
    assert failed["response_mask"].tolist() == [0]
    assert failed["rm_scores"].tolist() == [0.0]
    assert failed["extra_fields"]["reward_extra_info"]["rewards/label/mean"] is None
    assert "pixel_values" not in failed["multi_modal_inputs"]
