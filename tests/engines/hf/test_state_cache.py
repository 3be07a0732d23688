"""States of recurrences and convolutions in the cache: each conversation finds its own, whatever the others do.

What the model computes over the cache is compared with one plain forward of each whole conversation. In float64 they
agree to the last digits where transformers computes in float64 (LFM2). The gated delta rule always computes in float32,
and its normalization magnifies rounding where a head's output is near zero. The yardstick is then what float32 does to
the plain forward itself, and the decay is set so slow that heads remember many tokens.
"""

import math
import random
from types import SimpleNamespace

import pytest
import torch
import transformers as hf
from transformers import cache_utils

from tests.support.families import build_family
from tests.support.families.parts import build_weights
from viewbox.engines.hf.cache_layers import KVAndStateLayer, KVCacheLayer, StateLayer, find_layers
from viewbox.engines.hf.kv_cache import KVCache, measure_slot
from viewbox.engines.hf.scheduler import Sequence
from viewbox.errors import ModelError

WORDS, GRID = 280, (4, 8)
TOKENS = GRID[0] * GRID[1] // 4  # of a picture
SIZES = {
    "vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip


def build(name, dtype=torch.float32):
    model, _ = build_family(name)
    for key, weight in model.named_parameters():
        if key.endswith("A_log"):
            torch.nn.init.constant_(weight, math.log(0.1))
    return model.to(dtype)


def build_falcon_h1():
    """Text only: each layer has attention beside a recurrence."""
    mamba = {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 16}
    config = hf.FalconH1Config(**SIZES, **mamba, num_hidden_layers=2, head_dim=16, mamba_chunk_size=16)
    return build_weights(hf.FalconH1ForCausalLM, config, 0)


class Row(Sequence):
    """A conversation: its ids, the seeds of its pictures, and the logits after each token so far."""

    def __init__(self):
        super().__init__(None, 0)
        self.ids, self.seeds, self.logits, self.at_prompt = [], [], [], None


class Player:
    """Plays conversations in the slots of a cache as the engine does, and compares them with plain forwards."""

    def __init__(self, model, slots=5, seed=0):
        self.model, self.dice, self.rows = model, random.Random(seed), []
        self.cache = KVCache(find_layers(model.config.get_text_config()), slots)
        self.asks_positions = hasattr(model.model, "get_rope_index")
        self.image = getattr(model.config, "image_token_id", None)

    def write_text(self, length):
        return [self.dice.randrange(5, WORDS) for _ in range(length)]

    def make_picture(self, seed):
        torch.manual_seed(seed)
        patches, dtype = GRID[0] * GRID[1], self.model.dtype
        if self.asks_positions:
            return {"pixel_values": torch.randn(patches, 384).to(dtype), "image_grid_thw": torch.tensor([[1, *GRID]])}
        mask = torch.ones(1, patches, dtype=torch.long)
        values = torch.randn(1, patches, 192).to(dtype)
        return {"pixel_values": values, "spatial_shapes": torch.tensor([GRID]), "pixel_attention_mask": mask}

    def compute_positions(self, ids, start):
        if not self.asks_positions:
            return torch.arange(start, start + len(ids))[None], start + len(ids)
        tokens, pictures = torch.tensor([ids]), ids.count(self.image) // TOKENS
        grids = torch.tensor([(1, *GRID)] * pictures) if pictures else None
        types = (tokens == self.image).int()
        found, _ = self.model.model.get_rope_index(tokens, mm_token_type_ids=types, image_grid_thw=grids)
        return found[:, 0] + start, int(found.max()) + start + 1

    def join(self):
        row = Row()
        self.cache.take_slot(row)
        self.rows.append(row)
        return row

    def leave(self, row):
        self.check(row)
        self.cache.free_slot(row)
        self.rows.remove(row)

    @torch.no_grad()
    def prefill(self, rows, texts, pictures=False):
        seeds = [self.dice.randrange(1000) for _ in rows] if pictures else []
        given = [text[:1] + [self.image] * TOKENS + text[1:] if pictures else text for text in texts]
        kept = {}
        if pictures:
            encode = self.model.model.get_image_features
            features = [encode(**self.make_picture(seed), return_dict=True).pooler_output[0] for seed in seeds]
            kept = {"mm_encoder_outputs": {"image": SimpleNamespace(pooler_output=features)}}
        found = [self.compute_positions(ids, row.position) for row, ids in zip(rows, given, strict=True)]
        logits = self.forward(rows, given, torch.stack([positions for positions, _ in found], 1), **kept)
        for i, (row, (_, following)) in enumerate(zip(rows, found, strict=True)):
            row.position = following
            row.seeds += seeds[i : i + 1]
            row.logits.append(logits[i])

    @torch.no_grad()
    def decode(self, rows):
        width = self.cache.compact(rows)
        assert width == len(rows)  # no row that is away is computed
        held = list(self.cache.owners[:width])
        positions = torch.tensor([row.position for row in held])[None, :, None]
        positions = positions.expand(3 if self.asks_positions else 1, -1, -1)
        for row, logits in zip(held, self.forward(held, [self.write_text(1) for _ in held], positions), strict=True):
            row.position += 1
            row.logits.append(logits)

    def forward(self, rows, given, positions, **kept):
        lengths, ids = [row.length for row in rows], torch.tensor(given)
        slots, width = [row.held_slot for row in rows], ids.shape[1]
        num_read = max(lengths) + width
        columns = self.cache.prepare(slots, lengths, width, num_read, ids.device)
        mask = torch.arange(num_read)[None, None, None, :] <= columns[:, None, :, None]
        if self.asks_positions:
            kept["mm_token_type_ids"] = (ids == self.image).int()
        output = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions if self.asks_positions else positions[0],
            past_key_values=self.cache, use_cache=True, **kept,
        )  # fmt: skip
        self.cache.store_states()
        for row, new in zip(rows, given, strict=True):
            row.ids += new
            row.length += len(new)
        return output.logits

    def keep_prompt(self, row):
        row.at_prompt = row.length, row.position, list(row.seeds), self.cache.copy_states(row.held_slot)

    def fork(self, source, targets):
        length, position, seeds, states = source.at_prompt
        self.cache.copy_prefix(source.held_slot, [row.held_slot for row in targets], length, states)
        for row in targets:
            row.ids, row.seeds, row.length, row.position = source.ids[:length], list(seeds), length, position
            row.logits = [torch.cat(source.logits)[:length]]
            row.at_prompt = source.at_prompt

    @torch.no_grad()
    def run_plain(self, row, model=None):
        """Return the logits of one forward without a cache."""
        model = model or self.model
        ids, pictures = torch.tensor([row.ids]), [self.make_picture(seed) for seed in row.seeds]
        kept = {name: torch.cat([one[name] for one in pictures]) for name in pictures[0]} if pictures else {}
        if self.asks_positions:
            kept["mm_token_type_ids"] = (ids == self.image).int()
        if pictures:
            kept["pixel_values"] = kept["pixel_values"].to(model.dtype)
        return model(input_ids=ids, use_cache=False, **kept).logits[0]

    def measure(self, row):
        return (torch.cat(row.logits) - self.run_plain(row)).abs().max().item()

    def check(self, row):
        if row.length:
            assert self.measure(row) < 1e-12


def play(player, steps):
    """Random joins, leaves, prefills, forks and decode steps; each conversation is checked when it leaves."""
    dice, done = player.dice, dict.fromkeys(("join", "leave", "prefill", "decode", "fork"), 0)
    for _ in range(steps):
        begun = [row for row in player.rows if row.length]
        fresh = [row for row in player.rows if not row.length]
        sources = [row for row in begun if row.at_prompt]
        allowed = {"join": None in player.cache.owners, "leave": len(begun) > 2, "prefill": player.rows}
        allowed |= {"decode": begun, "fork": sources and fresh}
        what = dice.choice([name for name, fine in allowed.items() if fine])
        done[what] += 1
        if what == "join":
            player.join()
        elif what == "leave":
            player.leave(dice.choice(begun))
        elif what == "prefill":
            among = dice.choice([rows for rows in (begun, fresh) if rows])
            rows, length = dice.sample(among, dice.randint(1, len(among))), dice.randint(1, 70)
            player.prefill(rows, [player.write_text(length) for _ in rows], dice.random() < 0.5)
            for row in rows if among is fresh else ():
                player.keep_prompt(row)
        elif what == "decode":
            rows = dice.sample(begun, dice.randint(1, len(begun)))
            for _ in range(dice.randint(1, 4)):
                player.decode(rows)
        else:
            player.fork(dice.choice(sources), dice.sample(fresh, dice.randint(1, len(fresh))))
    for row in [*player.rows]:
        player.leave(row)
    return done


def test_random_plays_are_those_of_plain_forwards_to_the_last_digits():
    model = build("lfm2_vl", torch.float64)
    done = [play(Player(model, seed=seed), 60) for seed in range(3)]
    assert all(sum(one[name] for one in done) > 5 for name in done[0])


def test_a_delta_rule_over_turns_differs_from_a_plain_forward_by_no_more_than_rounding():
    player, exact = Player(build("qwen3_5")), build("qwen3_5", torch.float64)
    rows = [player.join() for _ in range(4)]
    player.prefill(rows[2:], [player.write_text(2) for _ in range(2)])  # shorter than the convolution
    player.prefill(rows[:2], [player.write_text(70) for _ in range(2)], pictures=True)
    player.keep_prompt(rows[1])
    for turn in range(3):
        for _ in range(5):
            player.decode([rows[1], rows[3]] if turn % 2 else rows[:3])
        player.prefill([rows[3], rows[0]], [player.write_text(100 + turn) for _ in range(2)], pictures=turn == 1)
    (late,) = (player.join(),)
    player.fork(rows[1], [late])  # which has moved on since
    player.decode([late, rows[0]])
    for row in player.rows:
        rounding = (player.run_plain(row).double() - player.run_plain(row, exact)).abs()
        found = (torch.cat(row.logits).double() - player.run_plain(row, exact)).abs()
        assert found.max() < 4 * rounding.max() < 4e-4
        assert found.mean() < 2 * rounding.mean() < 4e-5
    assert player.run_plain(rows[0]).std() > 0.5


def test_a_layer_with_keys_values_and_states_keeps_all_of_them():
    player = Player(build_falcon_h1())
    rows = [player.join() for _ in range(3)]
    player.prefill(rows, [player.write_text(30) for _ in rows])
    player.keep_prompt(rows[1])
    for turn in range(3):
        player.decode([rows[0], rows[2]] if turn % 2 else rows)
        player.prefill([rows[2], rows[0]], [player.write_text(7) for _ in range(2)])
    player.fork(rows[1], [player.join()])
    player.decode([player.rows[-1], rows[0]])
    assert max(map(player.measure, player.rows)) < 1e-4  # Mamba computes in float32
    assert {type(layer) for layer in player.cache.layers} == {KVAndStateLayer}


# ---------------------------------------------------------------------- the engine
@pytest.fixture(scope="module")
def qwen3_5(kits):
    return kits("qwen3_5")


def test_no_padding_is_seen_and_a_prompt_is_forked_at_once_and_later(
    qwen3_5, play_mixed, play, words, measure_mismatch
):
    model, seen, ahead = qwen3_5.model(), [], []
    model.register_forward_pre_hook(lambda module, args, given: seen.append(given["input_ids"]), with_kwargs=True)
    play_mixed(qwen3_5.generator(model, slots=5))  # their log-probs: `test_families.py`
    assert not any((ids == qwen3_5.tokens.pad_id).any() for ids in seen)
    assert max(len(ids) for ids in seen if ids.shape[1] > 1) > 1
    generator = qwen3_5.generator(model, slots=3)
    copy = generator.cache.copy_prefix

    def fork(source, targets, length, states):
        ahead.append(generator.cache.owners[source].length - length)
        copy(source, targets, length, states)

    generator.cache.copy_prefix = fork
    episodes = play(words, words.tasks[:2], generator, group=5, concurrency=10)
    assert min(ahead) == 0 < max(ahead)
    assert measure_mismatch(model, qwen3_5, episodes) <= qwen3_5.tolerance


def test_a_budget_counts_the_states_of_a_slot_and_those_kept_of_its_prompt(qwen3_5, play, words):
    model = qwen3_5.model()
    token, states = measure_slot(model)
    chosen = words.tasks[:4]
    longest = max(len(e.tokens.prompt_ids) for e in play(words, chosen, qwen3_5.generator(model)))
    each = (longest + 600 + 1) * token + 2 * states
    for budget, slots in ((2 * each, 2), (2 * each - 1, 1)):
        generator = qwen3_5.generator(model, slots=4, kv_cache_bytes=budget)
        play(words, chosen, generator)
        assert len(generator.cache.owners) == slots
    with pytest.raises(ModelError, match=f"one episode needs {each} bytes"):
        play(words, chosen, qwen3_5.generator(model, kv_cache_bytes=each - 1))


# ---------------------------------------------------------------------- layers
def test_bytes_are_those_of_each_layer_also_where_layers_differ_or_share():
    conv = (2 * 2 * 16 + 4 * 16) * 4  # of queries, keys and values, by the width of the kernel
    assert measure_slot(build("qwen3_5")) == (2 * 2 * 32 * 4, 3 * 4 * (conv + 4 * 16 * 16))
    assert measure_slot(build("lfm2_vl", torch.float64)) == (2 * 2 * 16 * 8, 3 * 8 * 64 * 3)
    for name in ("qwen3_5", "lfm2_vl"):  # without weights, too
        assert measure_slot(build(name).to("meta")) == measure_slot(build(name))
    assert measure_slot(build("gemma4_31b")) == (4 * 2 * (2 * 2 * 16 + 1 * 32), 0)


def test_transformers_chooses_which_layers_keep_what_and_changes_states_in_place(monkeypatch):
    kinds = ["full_attention", "sliding_attention", "conv", "linear_attention", "hybrid", "hybrid_sliding"]
    config = hf.Qwen3Config(num_hidden_layers=6)
    config.layer_types, config.sliding_window, config.number_of_conv_states = kinds, 8, 2
    layers, types = KVCache(find_layers(config), 2).layers, (KVCacheLayer, StateLayer, KVAndStateLayer)
    assert [type(layer) for layer in layers] == [kind for kind in types for _ in range(2)]
    assert [len(layer.conv_states) for layer in layers[2:]] == [2] * 4
    config.layer_types = ["full_attention", "indexed_attention", *kinds[:4]]
    with pytest.raises(ModelError, match="layers of indexed_attention: allowed are layers that keep"):
        find_layers(config)
    monkeypatch.delattr(cache_utils, "get_layer_types_and_kwargs")  # as in 5.9
    with pytest.raises(ModelError, match="layers that this transformers does not list"):
        find_layers(hf.Qwen3Config(num_hidden_layers=1))
    # So a decode step of the first slots needs no copy of their states.
    layer = cache_utils.LinearAttentionLayer(number_of_states=2)
    layer.update_conv_state(torch.ones(2, 3, 5), state_idx=1, conv_kernel_size=4)
    layer.update_recurrent_state(torch.ones(2, 3, 5), state_idx=1)
    before = layer.conv_states[1], layer.recurrent_states[1]
    assert layer.has_previous_state == {0: False, 1: True}
    layer.update_conv_state(torch.zeros(2, 3, 2), state_idx=1, conv_kernel_size=4)
    layer.update_recurrent_state(torch.zeros(2, 3, 5), state_idx=1)
    assert (layer.conv_states[1], layer.recurrent_states[1]) == before
    assert before[0].sum() == 12
    assert not before[1].any()
