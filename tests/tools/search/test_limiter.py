"""The limiter: places for requests that all processes of a machine share, in one small file."""

import asyncio
import json
import os
import time

import pytest

from viewbox.tools.search.limiter import LEASE, MAX_PAUSE, Busy, Limiter


def test_a_place_is_free_one_window_after_the_answer_and_not_after_the_departure(tmp_path):
    limiter = Limiter("a", 1, 0.15, tmp_path)
    assert limiter.try_enter("one") == 0
    time.sleep(0.2)
    assert limiter.try_enter("two") > 0  # the answer is not there: it may arrive now
    limiter.leave("one")
    assert 0.1 < limiter.try_enter("two") <= 0.153
    time.sleep(0.155)
    assert limiter.try_enter("two") == 0


def test_limiters_of_one_name_share_their_places_and_others_do_not(tmp_path):
    first, same, other = (Limiter(name, 2, 1.0, tmp_path) for name in ("a", "a", "b"))
    assert first.try_enter("1") == same.try_enter("2") == 0
    assert first.try_enter("3") > 0
    assert same.try_enter("4") > 0
    assert other.try_enter("5") == 0


def test_requests_wait_in_the_order_in_which_they_came(tmp_path):
    limiter, order = Limiter("a", 1, 0.01, tmp_path), []

    async def send(number):
        async with limiter.enter():
            order.append(number)

    async def send_all():
        await asyncio.gather(*map(send, range(20)))

    asyncio.run(send_all())
    assert order == list(range(20))


def test_a_deadline_ends_the_wait_and_takes_no_place(tmp_path):
    limiter = Limiter("a", 1, 0.05, tmp_path)

    async def send():
        async with limiter.enter():
            with pytest.raises(Busy):
                async with limiter.enter(asyncio.get_running_loop().time() + 0.1):
                    raise AssertionError("entered")
        async with limiter.enter():
            return True

    assert asyncio.run(send())


def test_a_cancelled_wait_takes_no_place(tmp_path):
    limiter = Limiter("a", 1, 0.05, tmp_path)

    async def send():
        async with limiter.enter():
            tasks = [asyncio.create_task(limiter.enter().__aenter__()) for _ in range(5)]
            await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return json.loads(limiter.path.read_text())["taken"]

    assert len(asyncio.run(send())) == 1


def test_a_pause_that_the_server_asks_for_holds_for_all_and_is_bounded(tmp_path):
    limiter, same = Limiter("a", 3, 0.1, tmp_path), Limiter("a", 3, 0.1, tmp_path)
    limiter.pause(0.2)
    assert 0.1 < same.get_pause() <= 0.2
    assert same.try_enter("1") > 0.1
    time.sleep(0.21)
    assert same.try_enter("1") == 0
    limiter.pause(10**9)
    assert MAX_PAUSE - 1 < limiter.get_pause() <= MAX_PAUSE


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b"null", b'{"taken": {"a": "x"}, "closed_until": 0}', b'{"taken": {}, "closed_until": NaN}',
     b'{"taken": [], "closed_until": 0}', b'{"taken": {}}', b"\xff", b"[" * 50_000, b" " * 70_000],
)  # fmt: skip
def test_a_file_that_cannot_be_read_means_that_all_places_are_taken(content, tmp_path):
    limiter = Limiter("a", 2, 1.0, tmp_path)
    limiter.path.write_bytes(content)
    assert limiter.try_enter("one") > 0


def test_what_was_written_before_the_machine_started_anew_does_not_count(tmp_path):
    limiter = Limiter("a", 1, 1.0, tmp_path)
    later = time.monotonic() + 10 * LEASE
    limiter.path.write_text(json.dumps({"taken": {"old": later}, "closed_until": later + MAX_PAUSE}))
    assert limiter.try_enter("one") == 0


def test_a_link_a_second_name_and_a_folder_in_the_place_of_the_file_are_refused(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for number, make in enumerate((os.symlink, os.link, lambda source, path: path.mkdir())):
        limiter = Limiter(f"a{number}", 1, 1.0, tmp_path)
        make(precious, limiter.path)
        with pytest.raises(OSError):
            limiter.try_enter("one")
    assert precious.read_text() == "precious"


def test_the_file_can_be_used_by_every_user(tmp_path):
    before = os.umask(0o077)
    try:
        limiter = Limiter("a", 1, 1.0, tmp_path)
        limiter.try_enter("one")
    finally:
        os.umask(before)
    assert limiter.path.stat().st_mode & 0o777 == 0o666
