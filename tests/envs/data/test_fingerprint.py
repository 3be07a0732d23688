"""A changed data file is noticed, and an unchanged one is not mistaken for a changed one."""

import os

import pytest

from tests.support.data_kit import make_env, make_rows, write_images, write_jsonl
from viewbox import make
from viewbox.envs.data import fingerprint
from viewbox.envs.data.fingerprint import fingerprint_data, list_changed


@pytest.fixture
def source(tmp_path):
    write_images(tmp_path)
    return write_jsonl(tmp_path / "train.jsonl", make_rows())


def fingerprint_of(source, **data):
    return fingerprint_data(make_env(source, **data))


def test_a_file_that_was_copied_or_touched_is_the_same(source, tmp_path):
    before = fingerprint_of(source)
    os.utime(source, (1, 1))
    assert fingerprint_of(source) == before
    (tmp_path / "other").mkdir()
    copy = tmp_path / "other" / "train.jsonl"
    copy.write_bytes(source.read_bytes())
    assert list(fingerprint_of(copy).values()) == list(before.values())


@pytest.mark.parametrize("whole", [2**28, 0], ids=["a small file", "a large file"])
def test_a_changed_answer_is_a_changed_file(source, monkeypatch, whole):
    monkeypatch.setattr(fingerprint, "WHOLE", whole)
    before = fingerprint_of(source)
    source.write_text(source.read_text().replace("yes", "no "))
    [change] = list_changed(before, fingerprint_of(source))
    assert change.startswith(f"{source}: {source.stat().st_size:,} bytes, ")


def test_of_a_large_file_parts_are_read_and_its_end_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprint, "WHOLE", 0)
    monkeypatch.setattr(fingerprint, "PART", 10)
    path = write_jsonl(tmp_path / "a.jsonl", make_rows(200))
    content = path.read_bytes()
    found = set()
    for place in (0, len(content) // 2, len(content) - 2):
        path.write_bytes(content[:place] + b" " + content[place + 1 :])
        found |= set(fingerprint_of(path).values())
    assert len(found) >= 2  # the first and the last byte; the middle one may lie between two parts


def test_every_file_of_a_split_of_a_folder_and_of_rewards_counts(source, tmp_path):
    other = write_jsonl(tmp_path / "test.jsonl", make_rows(2))
    rewards = write_jsonl(tmp_path / "rewards.jsonl", [{"task": "t1", "reward": 0.5}])
    band = {"rewards": str(rewards), "range": [0, 1]}
    env = make_env(source, difficulty=band)
    assert fingerprint_data(env).keys() == {str(source), str(rewards)}
    both = make_env(source).data.model_copy(update={"source": {"train": str(source), "test": str(other)}})
    assert fingerprint_data(make("vqa", data=both)).keys() == {str(source), str(other)}
    before = fingerprint_of(tmp_path)
    other.write_text("{}\n")
    assert fingerprint_of(tmp_path) != before


def test_a_mixture_has_the_data_of_its_environments_and_drawn_tasks_have_none(source):
    data = {"source": str(source), "columns": {"question": "question", "answer": "answer"}}
    mixed = make("mixture", environments={"digits": {}, "vqa": {"data": data}})
    assert fingerprint_data(mixed).keys() == {str(source)}
    assert fingerprint_data(make("digits")) == {}


def test_a_dataset_of_the_hub_is_not_looked_at():
    assert fingerprint_of("owner/name") == {}
