"""What goes wrong in a model costs its call: every other episode is that of a clean run, byte for byte."""

import asyncio

import pytest
import torch

import viewbox
from tests.support import ward
from tests.support.served_models import forget_servers
from tests.support.specialist_env import call, get_picture, offer
from tests.support.tables import each
from tests.support.tiny_specialists import save_segformer, save_vit

BAD = 5  # the task whose picture makes trouble
REPLIES = [call("look"), call("zoom_out_of_nowhere"), "done"]


def make(kind, folder):
    env = offer(kind, folder, max_batch=8, wait=0.05, timeout=60.0)
    env.prepare()
    return env


def play(env):
    """The episodes of all tasks, played at once."""

    async def play_all():
        policy = viewbox.ScriptedPolicy(REPLIES)
        played = viewbox.play_many(env, env.tasks, policy, concurrency=len(env.tasks))
        return {episode.info["index"]: episode async for episode in played}

    episodes = asyncio.run(play_all())
    return [episodes[number] for number in sorted(episodes)]


def get_server(env):
    return env.toolbox["look"].function.server


def get_error(episode):
    return episode.turns[2].tool_results[0].error


def give_nan(bad, forward):
    outputs = forward()
    outputs.logits[bad] = float("nan")
    return outputs


def raise_for_it(error):
    """A function that raises this for the bad picture."""

    def trouble(bad, forward):
        if bad:
            raise error
        return forward()

    return trouble


def give_a_wrong_shape(bad, forward):
    outputs = forward()
    if bad:
        outputs.logits = outputs.logits[:, :-1]
    return outputs


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """The folder of a classifier, and the episodes of a run with it and without a fault."""
    folder = save_vit(tmp_path_factory.mktemp("vit"))
    return folder, play(make("classification", folder))


@each("trouble, says", [  # in place of the forward; `bad` are the places of the bad picture in the batch
    (give_nan, "look gave numbers that are not finite"),
    (raise_for_it(torch.OutOfMemoryError("out of memory on /data/patients/17")),
     "look has no memory left for this picture"),
    (raise_for_it(RuntimeError("/data/patients/17")), "look failed on this picture (RuntimeError)"),
    (give_a_wrong_shape, "look gave scores of shape (1, 2) for 1 pictures"),
])  # fmt: skip
def test_a_fault_costs_its_call(clean, trouble, says):
    forget_servers()
    env = make("classification", clean[0])
    runner = get_server(env).runner
    marked = runner.processor(images=[get_picture(env, BAD)], return_tensors="pt")["pixel_values"][0]
    forward = runner.model.forward

    def change(pixel_values, **others):
        bad = [place for place, one in enumerate(pixel_values) if torch.allclose(one, marked)]
        return trouble(bad, lambda: forward(pixel_values=pixel_values, **others))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner.model, "forward", change)
        episodes = play(env)
    assert get_error(episodes[BAD]).startswith(says)
    assert "patients" not in get_error(episodes[BAD])
    check_others(episodes, clean[1])


def check_others(episodes, clean):
    assert len(episodes) == len(clean) == 16
    for number, (one, other) in enumerate(zip(episodes, clean, strict=True)):
        assert one.end_reason == ("answered" if get_error(one) is None else "error")
        if number != BAD:
            assert get_error(one) is None
            assert one.to_json() == other.to_json()


def test_a_mask_of_the_wrong_size_costs_its_call(tmp_path, monkeypatch):
    folder = save_segformer(tmp_path)
    clean = play(make("segmentation", folder))
    forget_servers()
    env = make("segmentation", folder)
    runner = get_server(env).runner
    picture = env.reset(env.tasks[BAD], seed=0).view.to_ref()
    infer = runner.infer

    def infer_with_small_masks(requests):
        processor, read = runner.processor, runner.processor.post_process_semantic_segmentation
        bad = [place for place, request in enumerate(requests) if request.picture.hash == picture.hash]

        def shrink(outputs, target_sizes):
            maps = read(outputs, target_sizes=target_sizes)
            return [one[::2, ::2] if place in bad else one for place, one in enumerate(maps)]

        with monkeypatch.context() as patch:
            patch.setattr(type(processor), "post_process_semantic_segmentation", lambda self, *a, **k: shrink(*a, **k))
            return infer(requests)

    monkeypatch.setattr(runner, "infer", infer_with_small_masks)
    episodes = play(env)
    assert get_error(episodes[BAD]) == "look gave a mask of 24 x 16 pixels for a picture of 48 x 32"
    check_others(episodes, clean)


def test_two_models_do_not_share_results_of_one_picture(tmp_path):
    folders = [save_vit(tmp_path / str(seed), seed=seed) for seed in range(2)]
    specs = {f"m{i}": {"kind": "classification", "model": folder, "device": "cpu"} for i, folder in enumerate(folders)}
    env = ward.Ward(specialists=specs)
    one, two, again = ward.play(env, ward.make_tasks(*[(name, {"image": "image_1"}) for name in ("m0", "m1", "m0")]))
    assert ward.get_result(one).facts == ward.get_result(again).facts != ward.get_result(two).facts
    assert [sum(env.toolbox[name].function.server.batches) for name in specs] == [1, 1]  # the third was kept
