"""A model folder may be somebody else's: code in it is never run, whatever stdin would answer."""

import io
import json
from pathlib import Path

import pytest

from tests.support.tables import each
from viewbox.assets import resolve_model_path
from viewbox.configs.sections import ModelSection
from viewbox.engines.hf.loading import load_model, load_processor
from viewbox.errors import ModelError

pytestmark = pytest.mark.timeout(120)
CODE = "from pathlib import Path\nPath({ran!r}).touch()\nclass Thing: pass\n"
FILES = {  # file of the folder → what it names
    "config.json": {"AutoConfig": "gift.Thing", "AutoModelForImageTextToText": "gift.Thing"},
    "processor_config.json": {"AutoProcessor": "gift.Thing"},
    "tokenizer_config.json": {"AutoTokenizer": [None, "gift.Thing"]},
    "preprocessor_config.json": {"AutoImageProcessor": "gift.Thing"},
}


@each("name", [*FILES])
def test_code_in_a_model_folder_is_not_run(tmp_path, monkeypatch, name):
    folder, ran = tmp_path / "model", tmp_path / "RAN"
    folder.mkdir()
    for file in Path(resolve_model_path("package:tiny_viewer")).iterdir():
        if file.is_file():
            (folder / file.name).symlink_to(file)
    path = folder / name
    values = json.loads(path.read_text()) if path.exists() else {}
    path.unlink(missing_ok=True)
    values = {**values, "auto_map": FILES[name], "model_type": "gift" if name == "config.json" else "x"}
    for key in ("processor_class", "tokenizer_class", "image_processor_type"):
        values[key] = "Gift"
    path.write_text(json.dumps(values))
    (folder / "gift.py").write_text(CODE.format(ran=str(ran)))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    section = ModelSection(name=str(folder))
    for load in (load_processor, load_model):
        try:
            load(section)
        except ModelError:
            continue
    assert not ran.exists()
