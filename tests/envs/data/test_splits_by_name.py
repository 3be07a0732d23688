"""Splits are read from the names of files and folders as the library `datasets` reads them, or refused."""

from pathlib import Path

import pytest

from tests.support.data_kit import list_ids, make_env, make_rows, write_images, write_jsonl
from viewbox.envs.data.sources import read_split
from viewbox.errors import ConfigError

NAMES = """
train.parquet train-00000-of-00002.parquet cases_train.parquet my-dataset-train.jsonl 2024.train.csv train1.csv
train_1.jsonl training.csv a-training-set.csv train/a.parquet x/train/a.parquet train-v2/a.csv my_train/sub/a.csv
train/part-0.parquet test.parquet cases_test.parquet test_cases.csv my-dataset-test.jsonl test-0.parquet test2.csv
a.test.jsonl testing.csv eval.jsonl evaluation.csv a_eval.parquet test/a.parquet x/eval/b.parquet data/test/c.csv
validation.jsonl my-dataset-validation.jsonl valid.csv dev.jsonl a-dev.parquet val.parquet val_0.parquet 0val0.csv
validation/a.csv dev/a.jsonl x_val/a.csv validation/test_cases.csv train/test_cases.csv
test/train-00000-of-00001.parquet
data/train-00000-of-00002.parquet data/test-00000-of-00001.parquet data/validation-00000-of-00001.parquet
data/train_sft-00000-of-00003.parquet data/dev-00000-of-00001.parquet data/unlabeled-00000-of-00001.parquet
data/train.parquet data/a_test.jsonl data/sub/train-00000-of-00001.parquet
latest.parquet contest.parquet trainval.parquet pretrain.csv attest.csv devel.csv cases.csv evaluate.jsonl tests.csv
trainer/a.csv a.parquet part-00001.parquet metadata.jsonl validated.csv
""".split()  # noqa: SIM905


def read_with_the_library(folder, name):
    """The split that `datasets` finds for a folder with this file alone; None: it takes any name to be training."""
    from datasets import data_files

    path = folder / name
    path.parent.mkdir(parents=True)
    path.write_text("")
    patterns = data_files.get_data_patterns(str(folder))
    [split] = [str(split) for split in patterns]
    return None if patterns[split] == ["**"] else split


@pytest.mark.parametrize("name", NAMES)
def test_a_name_tells_the_split_that_the_library_reads(tmp_path, name):
    assert read_split(Path(name)) == read_with_the_library(tmp_path / "d", name)


def test_of_a_name_with_two_splits_test_is_read_and_case_does_not_matter():
    names = (
        "train_test.csv", "val-train.csv", "Cases_TEST.csv", "train/test/a.csv",
        "data/cases-train-00000-of-00001.csv",
    )  # fmt: skip
    assert [read_split(Path(name)) for name in names] == ["test", "validation", "test", "test", "train"]


def make_folder(folder, names):
    """A folder whose files hold two rows each, in order of the names given."""
    write_images(folder)
    rows, made = make_rows(2 * len(names)), folder / "rows"
    made.mkdir()
    for number, name in enumerate(names):
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = rows[2 * number : 2 * number + 2]
        if path.suffix == ".jsonl":
            write_jsonl(path, part)
        elif path.suffix == ".csv":
            path.write_text("\n".join([",".join(part[0]), *(",".join(map(str, row.values())) for row in part)]))
        else:
            import pyarrow as pa
            from pyarrow import parquet

            parquet.write_table(pa.Table.from_pylist(part), path)
    return made


FOLDERS = (  # files, split, ids of the rows
    (("cases_test.csv", "cases_train.csv"), "train", "t2 t3"),
    (("cases_test.csv", "cases_train.csv"), "test", "t0 t1"),
    (("test/a.jsonl", "train/a.jsonl"), "train", "t2 t3"),
    (("train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl", "dev.jsonl"), "train", "t0 t1 t2 t3"),
    (("train_1.csv", "train_2.csv"), "train", "t0 t1 t2 t3"),
    (("part-1-of-2.csv", "part-2-of-2.csv"), "train", "t0 t1 t2 t3"),
    (("a.parquet", "b.parquet"), "train", "t0 t1 t2 t3"),
    (("data/train_sft-00000-of-00001.parquet", "data/test_sft-00000-of-00001.parquet"), "train", "t0 t1"),
    (("cases.csv", "._cases.csv", "~$cases.csv", "__MACOSX/cases.csv", ".cache/b.csv", ".train.csv"), "train", "t0 t1"),
    (("train.parquet", "._train.parquet", "config.json"), "train", "t0 t1"),
)


@pytest.mark.parametrize(("names", "split", "ids"), FOLDERS)
def test_a_folder_opens_the_files_of_a_split(tmp_path, names, split, ids):
    env = make_env(make_folder(tmp_path, names), images=str(tmp_path), split=split)
    assert list_ids(env) == ids.split()


REFUSED = (
    (("cases_train.parquet", "cases.parquet"), "cases_train.parquet tells its split, that of cases.parquet does not"),
    (("train.csv", "test.csv", "labels.csv"), "test.csv tells its split, that of labels.csv does not"),
    (("train-00000-of-00003.parquet", "train-00002-of-00003.parquet"),
        "train-00001-of-00003.parquet is missing: 2 of 3"),
    (("train-00001-of-00002.csv",), "train-00000-of-00002.csv is missing: 1 of 2"),
    (("part-1-of-3.csv", "part-3-of-3.csv"), "part-2-of-3.csv is missing"),
    (("a/train-00000-of-00001.parquet", "b/train-00000-of-00001.parquet"),
        "b/train-00000-of-00001.parquet, which are more than one dataset"),
    (("train-00000-of-00001.parquet", "train.parquet"), "more than one dataset"),
    (("train.csv", "train.jsonl"), "train.csv and train.jsonl of one split"),
    (("train.csv", "data/train.parquet"), "rows of two kinds, train.csv and data/train.parquet"),
    (("data/train.csv", "data/train.parquet"), "rows of two kinds, train.csv and data/train.parquet"),
    (("a.csv", "b.csv"), "holds a.csv, b.csv"),
    (("cases_test.parquet",), "unknown split 'train'; allowed: test"),
)  # fmt: skip


@pytest.mark.parametrize(("names", "said"), REFUSED)
def test_a_folder_that_does_not_tell_is_refused(tmp_path, names, said):
    with pytest.raises(ConfigError) as caught:
        len(make_env(make_folder(tmp_path, names), images=str(tmp_path)).tasks)
    assert said in str(caught.value)


def test_a_row_of_several_files_is_named_by_its_file_and_line(tmp_path):
    made = make_folder(tmp_path, ("train_1.jsonl", "train_2.jsonl"))
    (made / "train_2.jsonl").write_text('{"id": "t2"}\n\n' + (made / "train_1.jsonl").read_text())
    env = make_env(made, images=str(tmp_path))
    said = [str(error) for error in env.tasks.skipped.values()]
    assert "rows/train: train_2.jsonl, line 1: column 'image' is null" in said[0]
    assert (
        "train_2.jsonl, line 3: column 'id' is 't0'; expected: another id: train_1.jsonl, line 1 has this one"
        in said[1]
    )
