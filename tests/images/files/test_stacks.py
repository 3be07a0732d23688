"""Stacks: slices in order, whatever the order they came in, and an affine that gives back the place of each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import each
from viewbox.errors import ImageError
from viewbox.images.files.stacks import (
    NOWHERE,
    Slice,
    arrange,
    arrange_sparse,
    build_place,
    choose,
    describe_left_out,
    group,
)  # fmt: skip

AXIAL = (1, 0, 0, 0, 1, 0)


def slices(positions, directions=AXIAL, **fields):
    return [
        Slice(f"file {n}", (4, 6), build_place(position, directions), spacing=(0.5, 2.0), number=n, **fields)
        for n, position in enumerate(positions)
    ]


def along(*places):
    return [(0, 0, place) for place in places]


@given(seed=st.integers(0, 2**32), count=st.integers(2, 30), tilt=st.floats(-0.4, 0.4))
def test_the_affine_gives_back_the_place_of_every_slice_however_the_stack_is_turned_and_tilted(seed, count, tilt):
    chance = np.random.default_rng(seed)
    turn = np.linalg.qr(chance.normal(size=(3, 3)))[0]
    step = (turn[2] + tilt * turn[1]) * chance.uniform(0.5, 5)
    start = chance.normal(size=3) * 100
    shuffled = chance.permutation(count)
    given_slices = slices([start + number * step for number in shuffled], turn[:2].ravel())
    (time,), affine = arrange(given_slices)
    for place, one in enumerate(time):
        assert np.allclose(affine @ [0, 0, place, 1], [*one.place[0], 1])
    assert np.allclose(affine[:3, :2].T, turn[:2] * [[0.5], [2.0]])  # x along a row, y down a column
    normal = np.cross(turn[0], turn[1])
    assert (np.diff([one.place[0] @ normal for one in time]) > 0).all()


def test_a_single_slice_is_as_thick_as_it_says_and_an_even_drift_is_a_sheared_stack():
    (time,), affine = arrange(slices(along(7), thickness=(3.0,)))
    assert [one.number for one in time] == [0]
    assert affine[:3, 2].tolist() == [0, 0, 3]
    assert affine[:3, 3].tolist() == [0, 0, 7]
    _, affine = arrange(slices([(0, number, 5 * number) for number in range(4)]))
    assert affine[:3, 2].tolist() == [0, 1, 5]
    assert build_place((0, 0, 0), (1, 0, 0, 0.1, 0.995, 0)) is NOWHERE
    assert build_place((), AXIAL) is NOWHERE


def test_slices_at_one_place_are_times_by_the_first_number_that_tells_them_apart():
    given_slices = [
        Slice(f"{place} {time}", (4, 4), build_place((0, 0, place), AXIAL), times={"a": 1, "b": time})
        for place in (4.0, 0.0, 2.0) for time in (30, 4)
    ]  # fmt: skip
    times, _ = arrange(given_slices)
    names = [[f"{place} {time}" for place in ("0.0", "2.0", "4.0")] for time in (4, 30)]
    assert [[one.name for one in time] for time in times] == names
    given_slices = slices([(0, 0, 0), (0, 0, 0.0004), (0, 0, 3), (0, 0, 2.9998)])  # rounded, and so two places
    for number, one in enumerate(given_slices):
        object.__setattr__(one, "times", {"a": number % 2})
    times, _ = arrange(given_slices)
    assert [[one.number for one in time] for time in times] == [[0, 2], [1, 3]]


@each("positions, reason", [
    (along(0, 5, 15, 20), r"slices lie 5\.00 to 10\.00 mm apart: at least one is missing"),
    (along(0, 5, 5, 10), "up to 2 slices lie at the same place, such as file 1 and file 2: these are several"),
    ([(0, 0, 0), (3, 0, 5), (0, 0, 10)], r"shifted sideways, unevenly, by up to 3\.00 mm"),
    (along(*np.cumsum([5.4] * 40 + [4.6] * 40)), "at least one is missing"),
])  # fmt: skip
def test_slices_that_are_no_even_stack_are_refused_in_words(positions, reason):
    with pytest.raises(ImageError, match=reason):
        arrange(slices(positions))
    with pytest.raises(ImageError, match=r"5\.00 to 7\.00 mm apart, no multiples of one distance"):
        arrange_sparse(slices(along(0, 5, 12)))


@each("places, thickness, expected, distance", [
    ((20, 5, 0), (), [4, 1, 0], 5),  # the smallest gap
    ((20, 0), (5.0,), [4, 0], 5),  # what the slices say
    ((20, 0), (3.0,), [1, 0], 20),  # unless it does not fit
    ((20, 0), (3.0, 10.0), [2, 0], 10), ((5, 5, 0, 5), (), [1, 1, 0, 1], 5),  # several at one place
    ((9,), (2.0,), [0], 2), ((9,), (), [0], 1),
])  # fmt: skip
def test_a_sparse_stack_has_places_for_what_is_not_there(places, thickness, expected, distance):
    found, affine = arrange_sparse(slices(along(*places), thickness=thickness))
    assert found.tolist() == expected
    assert affine[:3, 2].tolist() == [0, 0, distance]
    assert affine[:3, 3].tolist() == [0, 0, min(places)]


def test_slices_are_grouped_by_what_they_share_within_rounding():
    first = slices(along(0, 1, 2))
    place, turned = first[0].place, build_place((0, 0, 0), (0, 1, 0, 0, 0, -1))
    rounded = Slice("r", (4, 6), build_place((0, 0, 3), (0.99999, 1e-4, 0, 0, 1, 0)), spacing=(0.5, 2.0001))
    others = [
        Slice("size", (5, 6), place, spacing=(0.5, 2.0)), Slice("spacing", (4, 6), place, spacing=(0.5, 2.1)),
        Slice("no spacing", (4, 6), place), Slice("turned", (4, 6), turned, spacing=(0.5, 2.0)),
        Slice("kind", (4, 6), place, "localizer", (0.5, 2.0)), Slice("nowhere", (4, 6), NOWHERE, "in color"),
    ]  # fmt: skip
    groups = group([*others, *first, rounded])
    assert [one.name for one in groups[0]] == ["file 0", "file 1", "file 2", "r"]
    assert [[one.name for one in members] for members in groups[1:]] == [[one.name] for one in others]


def test_the_group_with_more_than_half_is_chosen_or_the_one_that_is_named():
    groups = group([*slices(along(0, 1, 2)), *slices([(3, 0, 0), (4, 0, 0)], (0, 1, 0, 0, 0, -1))])
    assert len(choose(groups, None, "files")) == 3
    assert len(choose(groups, 2, "files")) == 2
    assert describe_left_out(groups[1:]) == ["2 files are left out: 6x4 pixels of 0.5x2 mm, sagittal"]
    for stack, what in [(None, "there are 2 kinds of frames"), (3, "there is no stack 3")]:
        with pytest.raises(ImageError, match=rf"{what}; choose one as PATH#stack=NUMBER: 1 \(3 frames: .*; 2 \(2 "):
            choose(groups, stack, "frames", all_of_them=True)
    with pytest.raises(ImageError, match="there are 2 kinds of files"):
        choose([groups[0][:2], groups[1]], None, "files")
