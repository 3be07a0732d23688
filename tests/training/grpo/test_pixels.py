"""The pixels of a batch: each distinct picture is prepared once, and held once, on the host."""

import pytest
import torch
from cachetools import LRUCache

from tests.support.grpo_kit import generate_batch, make_trainer
from viewbox.envs.digits import viewer
from viewbox.records import Reply


@pytest.fixture
def looking(strips):
    """The members of a group look in two ways, whatever the policy says, and then answer."""

    class Looking(type(strips)):
        async def step(self, state, reply):
            if state.turn == 0:
                said = viewer.write_zoom(self, 2, 0.3, 0.3 + state.seed % 2 / 4)
            else:
                said = viewer.write_answer(self, state.task, None)
            return await super().step(state, Reply(said))

    return Looking(max_turns=4, tools=("zoom",))


def find_distinct(inputs):
    return set(inputs["image_keys"][inputs["image_tokens"].bool()].tolist())


@pytest.mark.parametrize("room", [2**31, 0], ids=["a large cache", "no cache"])
def test_a_batch_prepares_and_holds_exactly_its_distinct_pictures(qwen3, tmp_path, looking, room):
    trainer = make_trainer(qwen3, tmp_path, looking)
    cache = trainer.tokens.pixel_cache
    cache._pixels = LRUCache(room, getsizeof=lambda pixels: pixels.nbytes or 1)
    if not room:
        cache._pixels = LRUCache(1, getsizeof=lambda pixels: 1)  # the next picture drives the last one out
    before = cache.num_prepared
    inputs = generate_batch(trainer)
    distinct = find_distinct(inputs)
    assert len(distinct) == 6  # two overviews, and two looks at each
    assert inputs["image_tokens"].bool().sum() == 16  # which eight episodes show
    assert cache.num_prepared - before == 6
    assert set(trainer.log_probs.pixels) == distinct
    assert {pixels.inputs["pixel_values"].device.type for pixels in trainer.log_probs.pixels.values()} == {"cpu"}
    trainer._compute_loss(trainer.model, inputs)
    assert cache.num_prepared - before == 6


def test_pixels_take_two_bytes_where_the_tower_does_and_four_elsewhere(qwen3, tmp_path, looking):
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
        model = qwen3.model().to(dtype)
        trainer = make_trainer(qwen3, tmp_path, looking, model=model)
        trainer.tokens.pixel_cache._pixels.clear()
        generate_batch(trainer)
        assert {pixels.inputs["pixel_values"].itemsize for pixels in trainer.log_probs.pixels.values()} == {size}
    qwen3.tokens.pixel_cache.dtype = torch.float32
