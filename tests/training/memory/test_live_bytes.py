"""Counting live bytes, of real tensors and of shapes; also what is relied on of torch."""

import torch

from viewbox.training.memory.live_bytes import LiveBytes, count_shapes, create_shapes_mode, replace_by_shapes

KIB = 1024


def test_a_tensor_counts_while_it_is_alive_and_its_views_count_nothing():
    given = torch.zeros(256)
    with LiveBytes([given]) as counter:
        one = torch.ones(256)
        view, same = one[:10], given.view(16, 16)
        assert counter.live == KIB
        two = one + 1
        assert counter.live == counter.peak == 2 * KIB
        del one, view
        assert counter.live == KIB
    assert (len(two), len(same)) == (256, 16)


def test_each_phase_has_its_peak_with_its_parts():
    with LiveBytes() as counter:
        counter.part = counter.phase = "first"
        kept = torch.ones(256)
        (kept + 1).sum()
        counter.part = counter.phase = "second"
        more = kept * 2
        counter.move(kept, "kept")
    assert 2 * KIB <= counter.peaks["first"]["first"] <= 2 * KIB + 8  # and a sum
    assert counter.parts["kept"] == KIB
    assert counter.parts["second"] == more.nbytes


def build_layers():
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))


def test_shapes_count_what_numbers_count_forward_and_backward_under_autocast():
    torch.manual_seed(0)
    model = build_layers()
    with LiveBytes(model.parameters()) as real, torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.ones(32, 64)).sum().backward()
    with torch.device("meta"):
        shapes = build_layers()
    mode = create_shapes_mode()
    replace_by_shapes(shapes, mode)
    with mode:
        states = torch.ones(32, 64)
    with count_shapes(shapes.parameters()) as counter, torch.autocast("cpu", dtype=torch.bfloat16):
        shapes(states).sum().backward()
    assert real.peak - states.nbytes <= counter.peak <= real.peak
    assert shapes[0].weight.grad.shape == (256, 64)


def test_a_mask_with_numbers_selects_rows_of_a_shape():
    with create_shapes_mode():
        states = torch.empty(8, 16)
    mask = torch.tensor([True, False] * 4)
    with count_shapes() as counter:
        assert states[mask].shape == (4, 16)
        states[mask] = states[mask] + 1
    assert counter.peak >= 4 * 16 * 4


def test_tied_weights_stay_tied():
    with torch.device("meta"):
        model = build_layers()
        model[2].weight = model[0].weight
    replace_by_shapes(model, create_shapes_mode())
    assert model[2].weight is model[0].weight
