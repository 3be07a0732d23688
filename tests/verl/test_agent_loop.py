"""Episodes through verl's own `AgentLoopWorker`, from the exported tasks to the batch that its trainer reads."""

import asyncio
import math
from itertools import pairwise

import hydra
import numpy as np
import pytest
import torch
from msgspec.structs import replace
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker, DictConfigWrap
from verl.protocol import DataProto
from verl.trainer.ppo.metric_utils import process_validation_metrics
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

from tests.support.verl import environment
from tests.support.verl.server import StubServer, compose_trainer, compute_response_logprobs, list_replies, run_row
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.engines.generator import GeneratorError
from viewbox.errors import ConfigError
from viewbox.images.ref import ImageRef
from viewbox.integrations.verl import agent_loop, stage
from viewbox.records import Scores
from viewbox.training.grpo.batch import add_pixels, collate

TOLERANCE = 1e-5  # fp32
SCRIPTED_TOLERANCE = 5e-5  # replies that the model finds unlikely: log-probs of -20 have a larger rounding error
LEARNING = ("free", "look", "look twice", "answer", "looks only", "malformed", "endless")
FAILING = ("abort", "abort later", "placeholder")


@pytest.fixture(scope="session")
def dataset(config, worker):
    """verl's data set of the exported tasks: (training, validation)."""

    def read(files, count):
        return RLHFDataset(files, worker.tokenizer, config.data, worker.processor, max_samples=count)

    return read(config.data.train_files, 32), read(config.data.val_files, -1)


def build_batch(dataset, numbers, *, step=3, validate=False):
    """The batch of some rows as verl's trainer makes it."""
    batch = DataProto.from_single_dict(collate_fn([dataset[number] for number in numbers]))
    batch.non_tensor_batch["uid"] = np.array([f"uid-{number}" for number in numbers], dtype=object)
    batch.non_tensor_batch["priority"] = np.arange(len(numbers))
    batch.meta_info = {"global_steps": step, "validate": validate}
    return batch


def record(patch):
    """The episodes that are played, by task id."""
    episodes, play_one = {}, agent_loop.play_one

    async def play(env, task, generator, **settings):
        episodes[task.id] = await play_one(env, task, generator, **settings)
        return episodes[task.id]

    patch.setattr(agent_loop, "play_one", play)
    return episodes


@pytest.fixture
def recorded(monkeypatch):
    return record(monkeypatch)


@pytest.fixture(scope="module")
def played(config, exported, worker, dataset):
    """30 episodes with every plan: (the server, verl's batch, the episodes in its order)."""
    server = worker.llm_client = StubServer(exported / "model", [*LEARNING, *FAILING])
    with pytest.MonkeyPatch.context() as patch:
        episodes = record(patch)
        batch = build_batch(dataset[0], range(30))
        output = asyncio.run(worker.generate_sequences(batch))
    ids = [row["task"] for row in batch.non_tensor_batch["extra_info"]]
    return server, output, [episodes[name] for name in ids]


def unpad(output, i):
    """The prompt, response, mask and log-probs of a row, without padding."""
    seen = output.batch["attention_mask"][i].bool()
    width = output.batch["prompts"].shape[1]
    prompt, response = seen[:width], seen[width:]
    return (
        output.batch["prompts"][i][prompt].tolist(),
        output.batch["responses"][i][response].tolist(),
        output.batch["response_mask"][i][response].tolist(),
        output.batch["rollout_log_probs"][i][response],
    )


def test_ids_mask_and_log_probs_of_verls_batch_are_those_of_the_record(played):
    _, output, episodes = played
    learned = [i for i, episode in enumerate(episodes) if not episode.is_fault]
    assert len(learned) >= 20
    for i in learned:
        tokens = episodes[i].tokens
        prompt, response, mask, logprobs = unpad(output, i)
        assert prompt == list(tokens.prompt_ids)
        assert response == list(tokens.completion_ids)
        assert mask == list(tokens.mask)
        assert torch.equal(logprobs, torch.tensor(tokens.logprobs))


def test_the_episodes_hold_up_to_three_images_and_every_end(played):
    episodes = played[2]
    counts = [len(episode.tokens.images) for episode in episodes if not episode.is_fault]
    assert counts.count(2) >= 3
    assert counts.count(3) >= 3
    assert {episode.end_reason for episode in episodes} == {"answered", "max_turns", "max_tokens", "malformed", "error"}


def test_pixels_and_grids_are_those_of_our_own_trainer(played):
    _, output, episodes = played
    (tokens,) = {id(found.tokens): found.tokens for found in stage._stages.values()}.values()
    for i, episode in enumerate(episodes):
        if not episode.is_fault:
            ours = add_pixels(collate([episode.tokens], tokens), [episode.tokens], tokens)
            theirs = output.non_tensor_batch["multi_modal_inputs"][i]
            assert torch.equal(theirs["pixel_values"].float(), ours["vision"]["pixel_values"])
            assert torch.equal(theirs["image_grid_thw"], ours["vision"]["image_grid_thw"])


def test_the_trainers_forward_of_verls_tensors_gives_the_servers_log_probs(played):
    server, output, episodes = played
    replies, compared = list_replies(server.requests), 0
    for i, episode in enumerate(episodes):
        if episode.is_fault:
            continue
        seen = output.batch["attention_mask"][i].bool()
        _, response, mask, sampled = unpad(output, i)
        ids = output.batch["input_ids"][i][seen]
        found = compute_response_logprobs(
            server,
            ids,
            output.batch["position_ids"][i][:, seen],
            output.non_tensor_batch["multi_modal_inputs"][i],
            len(response),
        )
        gap = (found - sampled)[torch.tensor(mask).bool()].abs()
        scripted = torch.tensor(replies[tuple(ids.tolist())][2])
        assert not (gap[~scripted] > TOLERANCE).any()
        assert not (gap[scripted] > SCRIPTED_TOLERANCE).any()
        compared += int((~scripted).sum())
    assert compared > 150


def test_the_reward_is_that_of_the_episode_on_its_last_token(played):
    _, output, episodes = played
    for i, episode in enumerate(episodes):
        expected = 0.0 if episode.is_fault else episode.scores.total
        assert output.batch["rm_scores"][i].sum().item() == pytest.approx(expected)
        response = output.batch["attention_mask"][i][output.batch["prompts"].shape[1] :].sum()
        assert output.batch["rm_scores"][i][: response - 1].sum() == 0


def test_an_episode_that_a_fault_ended_is_a_row_without_a_token_to_learn(played):
    _, output, episodes = played
    failed = [i for i, episode in enumerate(episodes) if episode.is_fault]
    assert len(failed) == 9
    for i in failed:
        prompt, response, mask, _ = unpad(output, i)
        assert len(prompt) == len(response) == 1
        assert mask == [0]
        assert "pixel_values" not in output.non_tensor_batch["multi_modal_inputs"][i]


def test_every_row_reports_the_same_numbers(played):
    _, output, episodes = played
    names = output.meta_info["reward_extra_keys"]
    assert {"rewards/label/mean", "rewards/box/mean", "end/timeout", "end/cancelled", "episodes/faults"} <= set(names)
    for i, episode in enumerate(episodes):
        ends = [name for name in names if name.startswith("end/") and output.non_tensor_batch[name][i]]
        assert ends == [f"end/{episode.end_reason}"]
        label = output.non_tensor_batch["rewards/label/mean"][i]
        expected = episode.scores.components["label"] if episode.scores else None
        assert math.isnan(label) if expected is None else label == expected


def test_a_request_goes_on_from_the_tokens_before_at_the_same_server(played):
    server = played[0]
    by_id = {}
    for request in server.requests:
        by_id.setdefault(request["id"], []).append(request)
    assert len(by_id) == 30
    several = [requests for requests in by_id.values() if len(requests) > 1]
    assert len(several) >= 12
    for requests in several:
        for earlier, later in pairwise(requests):
            before = [*earlier["ids"], *earlier["sampled"]]
            assert later["ids"][: len(before)] == before
            assert later["images"] >= earlier["images"]


def test_the_settings_of_a_request(played, config):
    server = played[0]
    sampling = server.requests[0]["sampling"]
    assert sampling["max_tokens"] == 400
    assert sampling["logprobs"] is True
    assert server.tokenizer.eos_token_id in sampling["stop_token_ids"]
    assert server.processor.image_token_id in sampling["logit_bias"]
    assert "seed" not in sampling  # verl gives none either: seeds of requests slow its sampler down


def change(config, **settings):
    """A copy of verl's config with dotted settings."""
    changed = OmegaConf.create(OmegaConf.to_container(config, resolve=True))
    for key, value in settings.items():
        OmegaConf.update(changed, key.replace("__", "."), value, merge=False, force_add=True)
    return changed


@pytest.fixture
def other(config, exported, server, dataset):
    """Runs one row with other settings of verl, or another server."""

    def run(*, plans=("free",), row=None, client=None, **settings):
        client = client or StubServer(exported / "model", plans)
        return run_row(AgentLoopWorker(change(config, **settings), client), dataset[0], **(row or {})), client

    return run


def test_a_prompt_that_is_too_long_is_refused_with_its_task(other, dataset):
    task = dataset[0][0]["extra_info"]["task"]
    with pytest.raises(ConfigError, match=rf"data.max_prompt_length = 32: the prompt of task {task} has \d+ tokens"):
        other(actor_rollout_ref__rollout__prompt_length=32)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"actor_rollout_ref__rollout__calculate_log_probs": False}, "calculate_log_probs = False"),
        ({"actor_rollout_ref__rollout__logprobs_mode": "raw_logprobs"}, "logprobs_mode = 'raw_logprobs'"),
        ({"actor_rollout_ref__rollout__name": "sglang"}, "name = 'sglang'"),
        ({"data__mm_processor_kwargs": {"min_pixels": 256}}, "min_pixels and max_pixels, both or none"),
        ({"data__mm_processor_kwargs": {"size": 3}}, "mm_processor_kwargs = "),
    ],
)
def test_settings_that_would_train_on_other_tokens_are_refused(other, monkeypatch, settings, says):
    monkeypatch.setattr("viewbox.integrations.verl.stage._stages", {})
    with pytest.raises(Exception, match="(?s)" + says.replace("(", r"\(")) as caught:
        other(**settings)
    assert isinstance(caught.value, ConfigError) or isinstance(caught.value.__cause__, ConfigError)


def test_other_pixel_bounds_reach_tokens_server_and_trainer(other, recorded):
    bounds = {"min_pixels": 1024, "max_pixels": 1024}
    out, client = other(data__mm_processor_kwargs=bounds, plans=["look"])
    (episode,) = recorded.values()
    assert out.multi_modal_inputs["image_grid_thw"].prod(1).tolist() == [16] * len(episode.tokens.images)
    assert client.requests[0]["ids"].count(client.processor.image_token_id) == 4


def test_a_server_that_fails_is_left_to_verl(other):
    class Dead:
        tokenizer = None

        async def generate(self, **request):
            raise RuntimeError("the engine died")

    with pytest.raises(GeneratorError, match="the engine died"):
        other(client=Dead())


def test_an_episode_out_of_time_teaches_nothing(export, config, dataset, recorded):
    folder = export("rollout.timeout=0.5")
    worker = AgentLoopWorker(compose_trainer(folder), StubServer(folder / "model", ["slow"]))
    out = run_row(worker, dataset[0])
    assert out.extra_fields["reward_extra_info"]["end/timeout"] == 1.0
    assert out.response_mask.sum() == 0


def test_a_tool_that_sleeps_keeps_no_other_episode_waiting(export, dataset, monkeypatch):
    folder = export(f"env.name={environment.__name__}:Slow")
    monkeypatch.setattr(environment, "PLAYED", [])
    worker = AgentLoopWorker(compose_trainer(folder), StubServer(folder / "model", ["look"]))
    output = asyncio.run(worker.generate_sequences(build_batch(dataset[0], range(6))))
    assert output.non_tensor_batch["episodes/faults"].tolist() == [0.0] * 6
    assert any(later < end for (_, end), (later, _) in pairwise(sorted(environment.PLAYED)))


def test_an_episode_that_was_cancelled_teaches_nothing(other, monkeypatch):
    play_one = agent_loop.play_one

    async def cancel(*args, **settings):
        return replace(await play_one(*args, **settings), end_reason="cancelled")

    monkeypatch.setattr(agent_loop, "play_one", cancel)
    out, _ = other()
    assert out.extra_fields["reward_extra_info"]["end/cancelled"] == 1.0
    assert out.response_mask.sum() == 0


def test_an_episode_cut_off_by_a_limit_is_masked_if_the_config_says_so(export, dataset, recorded):
    folder = export("train.mask_truncated_completions=true")
    worker = AgentLoopWorker(compose_trainer(folder), StubServer(folder / "model", ["endless", "free"]))
    cut, whole = run_row(worker, dataset[0]), run_row(worker, dataset[0], 1)
    assert cut.response_mask.sum() == 0
    assert cut.attention_mask.sum() > 100
    assert whole.response_mask.sum() > 0


def test_the_image_of_an_episode_must_have_the_size_that_was_counted(other, monkeypatch, recorded):
    def open_smaller(image):
        return image_open(image).resize((32, 32))

    image_open = ImageRef.open
    monkeypatch.setattr(ImageRef, "open", open_smaller)
    other()
    (episode,) = recorded.values()
    assert "is 32x32; allowed: its recorded 48x48" in episode.info["error"]


def test_an_episode_that_teaches_nothing_is_left_out_where_verl_takes_fewer_rows(config, exported, dataset):
    def run(**settings):
        worker = AgentLoopWorker(change(config, **settings), StubServer(exported / "model", ["abort"]))
        loop = hydra.utils.instantiate(
            OmegaConf.load(exported / "agent_loop.yaml")[0],
            trainer_config=DictConfigWrap(worker.config),
            server_manager=worker.llm_client,
            tokenizer=worker.tokenizer,
            processor=worker.processor,
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(worker.config.data),
        )
        return asyncio.run(loop.run({"logprobs": True}, **dataset[0][0], session_id=0, global_steps=1))

    assert run() == []
    assert run(algorithm__filter_groups__enable=True).response_mask == [0]


def test_an_episode_without_a_score_teaches_nothing(other, monkeypatch):
    build = BaseMultiTurnEnv.build_episode

    def build_unscored(self, *args, **kwargs):
        episode = build(self, *args, **kwargs)
        return replace(episode, scores=Scores(None, {"label": None, "box": 0.5}, faults={"label": "judge is down"}))

    monkeypatch.setattr(BaseMultiTurnEnv, "build_episode", build_unscored)
    out, _ = other()
    assert out.response_mask.sum() == 0
    assert out.reward_score == 0.0
    assert out.extra_fields["reward_extra_info"]["rewards/box/mean"] == 0.5


def test_seeds_differ_by_step_task_and_session_and_can_be_repeated(other, recorded):
    def get_seed(**row):
        recorded.clear()
        other(row=row)
        (episode,) = recorded.values()
        return episode.run_config.seed

    first = get_seed()
    assert get_seed(uid="another") == first
    assert len({first, get_seed(session_id=1), get_seed(global_steps=2), get_seed(number=1)}) == 4
    assert get_seed(global_steps=None) != get_seed(global_steps=None, uid="another")


def test_with_full_determinism_each_request_has_a_seed(other):
    _, client = other(actor_rollout_ref__rollout__full_determinism=True, plans=["look"])
    seeds = [request["sampling"]["seed"] for request in client.requests]
    assert len(set(seeds)) == len(seeds) >= 2


def test_the_weights_that_replied_are_named(other):
    out, _ = other()
    assert (out.extra_fields["min_global_steps"], out.extra_fields["max_global_steps"]) == (7, 7)
    stopped, _ = other(plans=["abort"])  # as in verl's older trainer
    assert stopped.extra_fields["min_global_steps"] == 1  # no reply: the step of the row


def test_environment_and_tokens_are_made_once_a_process(other, monkeypatch):
    built, build = [], agent_loop.open_stage.__globals__["_build_stage"]
    monkeypatch.setattr("viewbox.integrations.verl.stage._stages", {})
    monkeypatch.setattr("viewbox.integrations.verl.stage._build_stage", lambda *a: built.append(1) or build(*a))
    other()
    other(row={"number": 1})
    assert built == [1]


def test_validation_reports_every_component_and_end(worker, exported, dataset):
    worker.llm_client = StubServer(exported / "model", ["answer", "malformed", "abort"])
    batch = build_batch(dataset[1], range(6), validate=True)
    output = asyncio.run(worker.generate_sequences(batch))
    infos = {name: list(output.non_tensor_batch[name]) for name in output.meta_info["reward_extra_keys"]}
    sources = list(batch.non_tensor_batch["data_source"])
    found = process_validation_metrics(sources, [f"uid-{i}" for i in range(6)], infos)["digits"]
    assert found["end/error"]["mean@1"] == pytest.approx(2 / 6)
    assert found["end/malformed"]["mean@1"] == pytest.approx(2 / 6)
    for component in ("label", "box"):
        assert math.isfinite(found[f"rewards/{component}/mean"]["mean@1"])  # the faults are left out of the mean
    assert all(request["sampling"]["temperature"] == 1.0 for request in worker.llm_client.requests)
