"""Where rows come from: files of every kind, folders with splits as the library `datasets` reads names, the hub."""

import os
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from tests.support import ct_folder
from tests.support.data_kit import list_ids, make_env, make_rows, refuse, write_images, write_jsonl, write_table
from tests.support.tables import each
from viewbox import make
from viewbox.envs.data import selection, sources, tables
from viewbox.envs.data.images import check_path
from viewbox.envs.data.sources import fingerprint_data, list_changed, read_split
from viewbox.errors import ConfigError
from viewbox.images.files import open_image
from viewbox.images.view import View
from viewbox.tools import call_stateful


def with_bytes(folder, rows):
    return [{**row, "image": {"bytes": (folder / row["image"]).read_bytes(), "path": row["image"]}} for row in rows]


@pytest.fixture
def folder(tmp_path):
    write_images(tmp_path)
    return tmp_path


def write(folder, kind):
    rows = make_rows()
    return write_table(folder / f"tasks.{kind}", with_bytes(folder, rows) if kind in ("arrow", "parquet") else rows)


@each("kind", ["jsonl", "json", "csv", "arrow", "parquet"])
def test_every_kind_of_file_gives_the_same_tasks_and_images(folder, kind):
    env = make_env(write(folder, kind))
    assert list_ids(env) == [f"t{i}" for i in range(6)]
    task = env.tasks[3]
    assert (task.prompt, task.reference) == ({"question": "Is 3 odd?"}, {"answer": "yes"})
    assert env.images(task)[0].pixels[0, 0] == 30
    episode = env.play(task, lambda messages: "yes")
    assert (episode.scores.total, episode.turns[0].images[0].width) == (1.0, 30)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_large_parquet_file_gives_any_row_from_a_fresh_copy_or_where_it_is(folder, streaming, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(tables, "IN_MEMORY", 0)
    path = write(folder, "parquet")
    env = make_env(path, streaming=streaming)
    assert [env.tasks[i].id for i in (5, 0, 3)] == ["t5", "t0", "t3"]
    assert env.images(env.tasks[5])[0].pixels[0, 0] == 50
    copies = list((folder / "cache").rglob("*.arrow")) if (folder / "cache").exists() else []
    assert len(copies) == (not streaming)
    parquet.write_table(pa.Table.from_pylist(with_bytes(folder, make_rows(4))), path)
    assert len(make_env(path, streaming=streaming).tasks) == 4


def test_a_saved_dataset_opens_with_its_splits_and_names_its_classes(folder):
    import datasets

    text, label = datasets.Value("string"), datasets.ClassLabel(names=["no", "yes"])
    features = datasets.Features(id=text, image=datasets.Image(), question=text, answer=label)
    rows = [{key: row[key] for key in features} for row in with_bytes(folder, make_rows())]
    shuffled = datasets.Dataset.from_list(rows, features=features).shuffle(seed=1)
    datasets.DatasetDict(train=shuffled.select(range(4)), test=shuffled.select(range(4, 6))).save_to_disk(folder / "d")
    train, test = make_env(folder / "d"), make_env(folder / "d", split="test")
    assert sorted(list_ids(train) + list_ids(test)) == [f"t{i}" for i in range(6)]
    assert all(task.reference["answer"] == ("no", "yes")[int(task.id[1:]) % 2] for task in train.tasks)
    assert all(train.images(task)[0].pixels[0, 0] == int(task.id[1:]) * 10 for task in train.tasks)


def test_a_folder_as_the_hub_has_it_one_table_beside_images_and_a_file_by_split_are_sources(folder):
    rows = with_bytes(folder, make_rows())
    (folder / "hub" / "data").mkdir(parents=True)
    for name, part in (("train-00000-of-00002", rows[:2]), ("train-00001-of-00002", rows[2:4]), ("test-0", rows[4:])):
        parquet.write_table(pa.Table.from_pylist(part), folder / "hub" / "data" / f"{name}.parquet")
    assert list_ids(make_env(folder / "hub")) == ["t0", "t1", "t2", "t3"]
    assert list_ids(make_env(folder / "hub", split="test")) == ["t4", "t5"]
    assert list_ids(make_env(folder / "hub", streaming=True)) == ["t0", "t1", "t2", "t3"]
    (folder / "tasks").mkdir()
    write_jsonl(folder / "tasks" / "metadata.jsonl", make_rows())
    assert len(make_env(folder / "tasks", images=str(folder)).tasks) == 6
    sources = {name: str(write_jsonl(folder / f"{name}.jsonl", make_rows(n))) for name, n in (("train", 4), ("dev", 2))}
    assert list_ids(make_env(sources, split="dev")) == ["t0", "t1"]


SPLITS = (  # what is said, of settings beside tasks.jsonl
    ("data.hold_out cuts a split `test` off", {"split": "test"}),
    ("allowed: train, test, because hold_out", {"split": "val", "hold_out": 0.5}),
)
WRONG = {  # what is said, of a source
    "did you mean 'tasks.jsonl'?": "tasks.jsnl", "a file of kind '.png'; allowed: a file (.parquet": "0.png",
    "broken.json: not JSON": "broken.json", "holds a dict; allowed: a list of objects": "object.json",
    "its header is empty or has two columns of one name": "twice.csv", "`iconv -f UTF-16 -t UTF-8`": "wide.csv",
    "broken.parquet: not a Parquet file": "broken.parquet", "broken.arrow: not an Arrow file": "broken.arrow",
    "b-00001-of-00002.parquet: not a Parquet file": "shards", "NUL, as in UTF-16": "wide_le.csv",
    "a list of objects stands in a .json file": "list.jsonl", "holds nothing; allowed in it": "empty",
    "nothing.jsonl is empty: it has no row": "nothing.jsonl",
    "holds rows of two kinds, broken.json and broken.arrow": "",
    "b.csv, which are more than one dataset; allowed: one of these as the source, or a file by split": "texts",
}  # fmt: skip


def test_a_source_that_cannot_be_used_is_named_with_what_can(folder):
    write(folder, "jsonl")
    for name in ("empty", "texts", "shards"):
        (folder / name).mkdir()
    for name in "ab":
        write_table(folder / "texts" / f"{name}.csv", make_rows())
    for name, text in (("object.json", "{}"), ("twice.csv", "a,a\n1,2\n"), ("list.jsonl", '[{"id": 1}]')):
        (folder / name).write_text(text)
    for kind in ("json", "parquet", "arrow"):
        (folder / f"broken.{kind}").write_text("[")
    (folder / "nothing.jsonl").write_text("")
    for name, encoding in (("wide", "utf-16"), ("wide_le", "utf-16-le")):
        (folder / f"{name}.csv").write_text("id,image,question,answer\n", encoding=encoding)
    write(folder, "parquet").rename(folder / "shards" / "b-00000-of-00002.parquet")
    good = (folder / "shards" / "b-00000-of-00002.parquet").read_bytes()
    (folder / "shards" / "b-00001-of-00002.parquet").write_bytes(good[: len(good) // 2])  # a download that was cut
    sources = [(said, source, {}) for said, source in WRONG.items()]
    for said, source, data in (*sources, *((said, "tasks.jsonl", data) for said, data in SPLITS)):
        refuse(said, folder / source, **data)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_small_file_that_unpacks_to_much_memory_is_refused(tmp_path, monkeypatch, streaming):
    monkeypatch.setattr(tables, "MAX_DECODED", 2**20)
    tables_ = {"numbers": [0] * 500_000, "texts": ["x" * 10_000] * 1000}  # 4 MB and 10 MB, of some hundred bytes
    for name, values in tables_.items():
        path = tmp_path / f"{name}.parquet"
        parquet.write_table(pa.table({"id": values}), path, row_group_size=len(values), compression="zstd")
        assert path.stat().st_size < 20_000
        with pytest.raises(ConfigError, match=rf"{name}\.parquet: takes 1,048,576 bytes more memory than its size"):
            make_env(path, streaming=streaming).rows.read(0, ["id"])
    table = pa.table({"id": ["x" * 10_000] * 1000})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema, options=options) as file:
        file.write_table(table, max_chunksize=10)
    with pytest.raises(ConfigError, match=r"t\.arrow: takes 1,048,576 bytes more memory"):
        len(make_env(tmp_path / "t.arrow").rows)


def test_features_that_are_no_features_name_no_classes_and_without_a_network_it_says_what_to_do(tmp_path, monkeypatch):
    import datasets

    about = {b"huggingface": b'{"info": {"features": {"id": "os.system", "image": {"_type": "ClassLabel"}}}}'}
    parquet.write_table(pa.table({"id": ["a"]}).replace_schema_metadata(about), tmp_path / "t.parquet")
    assert make_env(tmp_path / "t.parquet").rows.read(0, ["id"]) == {"id": "a"}

    def fail(*args, **kwargs):
        raise ConnectionError("Couldn't reach 'someone/scans' on the Hub (LocalEntryNotFoundError)")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    refuse("hf download someone/scans --repo-type dataset --local-dir FOLDER", "someone/scans")


def test_a_draw_from_a_stream_reads_each_row_group_about_once(folder, monkeypatch):
    rows = [{**make_rows(1)[0], "id": f"t{i}"} for i in range(400)]
    parquet.write_table(pa.Table.from_pylist(with_bytes(folder, rows)), folder / "t.parquet", row_group_size=10)
    read, original = [], parquet.ParquetFile.read_row_group

    def count(self, number, *args, **kwargs):
        read.append(number)
        return original(self, number, *args, **kwargs)

    monkeypatch.setattr(tables, "KEPT_GROUPS", 6 * parquet.ParquetFile(folder / "t.parquet").read_row_group(0).nbytes)
    monkeypatch.setattr(selection, "MAX_CHECKED", 1)
    env = make_env(folder / "t.parquet", streaming=True, sample=400)
    assert len(env.tasks) == 400
    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", count)
    ids = list_ids(env)
    assert sorted(row["id"] for row in rows) == sorted(ids) != ids
    assert len(read) <= 41


@each("name", ["scan#stack=2", "study#series=3", "study#series=3#stack=1"])
def test_a_folder_may_name_one_of_its_series_and_a_name_that_is_there_selects_nothing(tmp_path, name):
    (tmp_path / "study").mkdir()
    assert check_path("study#series=3", tmp_path, exists=True) is None
    assert "a file in" in check_path("other#series=3", tmp_path, exists=True)
    Image.new("L", (7, 5)).save(tmp_path / name, "PNG")
    assert check_path(name, tmp_path, exists=True) is None
    assert open_image(name, tmp_path).size == open_image(tmp_path / name).size == (7, 5)


@each("form, other", [("NFC", "NFD"), ("NFD", "NFC")])
def test_a_name_is_found_in_either_normal_form(tmp_path, form, other):  # droppyjs/droppy#72
    (tmp_path / unicodedata.normalize(form, "Köln")).mkdir()
    Image.new("L", (7, 5)).save(tmp_path / unicodedata.normalize(form, "Köln") / "a.png")
    name = f"{unicodedata.normalize(other, 'Köln')}/a.png"
    assert check_path(name, tmp_path, exists=True) is None
    assert open_image(name, tmp_path).size == open_image(f"{tmp_path}/{name}").size == (7, 5)
    assert "a file in" in check_path("Kóln/a.png", tmp_path, exists=True)


def test_a_ct_in_nifti_has_hounsfield_units_if_the_data_block_says_so(tmp_path):
    ct_folder.write_study(tmp_path, patients=2)
    columns = {"id": "case", "image": "scan", "question": "question", "answer": "answer"}
    images = str(tmp_path / "ct")
    plain, env = (make_env(tmp_path / "cases.csv", columns, images=images, unit=unit) for unit in (None, "HU"))
    dicom, nifti = env.tasks[0], env.tasks[2]
    assert [plain.images(task)[0].unit for task in (dicom, nifti)] == ["HU", None]
    assert [env.images(task)[0].unit for task in (dicom, nifti)] == ["HU", "HU"]
    assert env.images(nifti)[0].volume.get_slice(0).unit == "HU"
    views = [View.of(one.images(nifti)[0]) for one in (env, plain)]
    errors = [call_stateful("window_level", view, {"preset": "ct_liver"})[1].error for view in views]
    assert [error is None for error in errors] == [True, False]


# ---- whether they are still the same
def fingerprint_of(source, **data):
    return fingerprint_data(make_env(source, **data))


def test_a_file_that_was_copied_or_touched_is_the_same_and_a_changed_one_is_not(folder):
    source = write(folder, "jsonl")
    before = fingerprint_of(source)
    os.utime(source, (1, 1))
    assert fingerprint_of(source) == before
    (folder / "other").mkdir()
    copy = folder / "other" / source.name
    copy.write_bytes(source.read_bytes())
    assert list(fingerprint_of(copy).values()) == list(before.values())
    source.write_text(source.read_text().replace("yes", "no "))
    [change] = list_changed(before, fingerprint_of(source))
    assert change.startswith(f"{source}: {source.stat().st_size:,} bytes, ")


def test_of_a_large_file_parts_are_read_and_its_end_is_one(folder, monkeypatch):
    monkeypatch.setattr(sources, "PARTS", 4)
    monkeypatch.setattr(sources, "PART", 10)
    path = write_jsonl(folder / "a.jsonl", make_rows(200))
    content = path.read_bytes()
    found = {*fingerprint_of(path).values()}
    for place in (0, len(content) - 2):
        path.write_bytes(content[:place] + b" " + content[place + 1 :])
        found |= set(fingerprint_of(path).values())
    assert len(found) == 3


def test_every_file_of_a_split_a_folder_rewards_and_a_mixture_counts_and_nothing_else(folder):
    source, other = write(folder, "jsonl"), write_jsonl(folder / "test.jsonl", make_rows(2))
    rewards = write_jsonl(folder / "rewards.txt", [{"task": "t1", "reward": 0.5}])
    band = {"rewards": str(rewards), "range": [0, 1]}
    assert fingerprint_of(source, difficulty=band).keys() == {str(source), str(rewards)}
    both = make_env(source).data.model_copy(update={"source": {"train": str(source), "test": str(other)}})
    assert fingerprint_data(make("vqa", data=both)).keys() == {str(source), str(other)}
    before = fingerprint_of(folder)
    other.write_text("{}\n")
    assert fingerprint_of(folder) != before
    data = {"source": str(source), "columns": {"question": "question", "answer": "answer"}}
    mixed = make("mixture", environments={"digits": {}, "vqa": {"data": data}})
    assert fingerprint_data(mixed).keys() == {str(source)}
    assert fingerprint_data(make("digits")) == fingerprint_of("owner/name") == {}


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


@each("name", NAMES)
def test_a_name_tells_the_split_that_the_library_reads(tmp_path, name):
    from datasets import data_files

    path = tmp_path / "d" / name
    path.parent.mkdir(parents=True)
    path.write_text("")
    [(split, patterns)] = data_files.get_data_patterns(str(tmp_path / "d")).items()
    assert read_split(Path(name)) == (None if patterns == ["**"] else str(split))  # None: any name is training there


def test_of_a_name_with_two_splits_test_is_read_and_case_does_not_matter():
    names = "train_test.csv val-train.csv Cases_TEST.csv train/test/a.csv data/cases-train-00000-of-00001.csv"
    assert [read_split(Path(n)) for n in names.split()] == ["test", "validation", "test", "test", "train"]


def make_folder(folder, names):
    """A folder whose files hold two rows each, in order of the names given."""
    write_images(folder)
    rows, made = make_rows(2 * len(names)), folder / "rows"
    made.mkdir()
    for number, name in enumerate(names):
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}") if name == "config.json" else write_table(path, rows[2 * number : 2 * number + 2])
    return made


FOLDERS = (  # files, split, ids of the rows
    (("cases_test.csv", "cases_train.csv"), "train", "t2 t3"), (("cases_test.csv", "cases_train.csv"), "test", "t0 t1"),
    (("test/a.jsonl", "train/a.jsonl"), "train", "t2 t3"),
    (("train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl", "dev.jsonl"), "train", "t0 t1 t2 t3"),
    (("part-1-of-2.csv", "part-2-of-2.csv"), "train", "t0 t1 t2 t3"),
    (("train_1.csv", "train_2.csv"), "train", "t0 t1 t2 t3"), (("a.parquet", "b.parquet"), "train", "t0 t1 t2 t3"),
    (("data/train_sft-00000-of-00001.parquet", "data/test_sft-00000-of-00001.parquet"), "train", "t0 t1"),
    (("cases.csv", "._cases.csv", "~$cases.csv", "__MACOSX/cases.csv", ".cache/b.csv", ".train.csv"), "train", "t0 t1"),
    (("train.parquet", "._train.parquet", "config.json"), "train", "t0 t1"),
)  # fmt: skip


@each("names, split, ids", FOLDERS)
def test_a_folder_opens_the_files_of_a_split(tmp_path, names, split, ids):
    env = make_env(make_folder(tmp_path, names), images=str(tmp_path), split=split)
    assert list_ids(env) == ids.split()


REFUSED = (
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
)  # fmt: skip


@each("names, said", REFUSED)
def test_a_folder_that_does_not_tell_is_refused(tmp_path, names, said):
    refuse(said, make_folder(tmp_path, names), images=str(tmp_path))


def test_a_row_of_several_files_is_named_by_its_file_and_line(tmp_path):
    made = make_folder(tmp_path, ("train_1.jsonl", "train_2.jsonl"))
    (made / "train_2.jsonl").write_text('{"id": "t2"}\n\n' + (made / "train_1.jsonl").read_text())
    env = make_env(made, images=str(tmp_path))
    said = [str(error) for error in env.tasks.skipped.values()]
    assert "rows/train: train_2.jsonl, line 1: column 'image' is null" in said[0]
    again = "train_2.jsonl, line 3: column 'id' is 't0'; expected: another id: train_1.jsonl, line 1 has this one"
    assert again in said[1]
