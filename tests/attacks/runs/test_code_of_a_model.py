"""A model folder may be somebody else's: code in it is never run, whatever stdin would answer, and what does not fit
together is refused by name before it costs memory."""

import io
import json
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import MllamaConfig

from tests.support.tables import each
from viewbox.assets import resolve_model_path
from viewbox.configs.sections import ModelSection
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.hf.loading import _build_embedding, load_model, load_processor
from viewbox.errors import ModelError
from viewbox.training.plan import find_model_shapes
from viewbox.utils.model_folder import describe_tokens

pytestmark = pytest.mark.timeout(120)
CODE = "from pathlib import Path\nPath({ran!r}).touch()\nclass Thing: pass\n"
FILES = {  # file of the folder → what it names
    "config.json": {"AutoConfig": "gift.Thing", "AutoModelForImageTextToText": "gift.Thing"},
    "processor_config.json": {"AutoProcessor": "gift.Thing"},
    "tokenizer_config.json": {"AutoTokenizer": [None, "gift.Thing"]},
    "preprocessor_config.json": {"AutoImageProcessor": "gift.Thing"},
}


@each("name, named", FILES.items())
def test_code_in_a_model_folder_is_not_run(tmp_path, monkeypatch, name, named):
    folder, ran = tmp_path / "model", tmp_path / "RAN"
    folder.mkdir()
    for file in Path(resolve_model_path("package:tiny_viewer")).iterdir():
        if file.is_file():
            (folder / file.name).symlink_to(file)
    path = folder / name
    values = json.loads(path.read_text()) if path.exists() else {}
    path.unlink(missing_ok=True)
    values |= {"auto_map": named, "model_type": "gift" if name == "config.json" else "x"}
    values |= dict.fromkeys(("processor_class", "tokenizer_class", "image_processor_type"), "Gift")
    path.write_text(json.dumps(values))
    (folder / "gift.py").write_text(CODE.format(ran=str(ran)))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    for load in (load_processor, load_model):
        with suppress(ModelError):
            load(ModelSection(name=str(folder)))
    assert not ran.exists()


def edit(name, part=None, **values):
    def change(folder):
        given = json.loads((folder / name).read_text())
        (given if part is None else given[part]).update(values)
        (folder / name).write_text(json.dumps(given))

    return change


def index(name, file="model.safetensors"):
    """As a folder of several files, of which `name` is one."""
    return lambda folder: (folder / f"{file}.index.json").write_text(json.dumps({"weight_map": {"a": name}}))


def move_template(write, file="tokenizer_config.json"):
    def change(folder):
        template = (folder / "chat_template.jinja").read_text()
        (folder / "chat_template.jinja").unlink()
        (folder / file).touch()
        given = json.loads((folder / file).read_text() or "{}")
        (folder / file).write_text(json.dumps(given | {"chat_template": write(template)}))

    return change


def add_tokens(folder):
    """https://github.com/huggingface/transformers/issues/12763, https://github.com/QwenLM/Qwen3-VL/issues/1402"""
    given = json.loads((folder / "tokenizer.json").read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    given["added_tokens"].append({"id": 896, "content": "<loc>", **flags})
    (folder / "tokenizer.json").write_text(json.dumps(given))


def show(**values):
    return edit("processor_config.json", "image_processor", **values)


UNSEEN = "Qwen2VLImageProcessor cannot show a picture"
CODE_OF_HUB = "code of a hub repository; allowed: one that is part of transformers"


@each("change, words", [  # what is other than in the shipped model, and words of the refusal, or None: it plays
    (edit("config.json", attn_implementation="paged|evil/kernel"), CODE_OF_HUB),
    (edit("config.json", _attn_implementation={"text_config": "evil/kernel"}), CODE_OF_HUB),
    (index("../x.safetensors"), "names '../x.safetensors'; allowed: files .safetensors in its folder"),
    (index("pytorch_model.bin"), "allowed: files .safetensors in its folder"),
    (index("../a.bin", "pytorch_model.bin"), "allowed: files .bin in its folder"),
    (add_tokens, "tokens up to 896, its embedding 896 rows"),
    (lambda folder: [edit("config.json", "vision_config", patch_size=3000)(folder),
                                      show(patch_size=3000)(folder)], "6000 pixels a side"),
    (show(temporal_patch_size=10**6), "and 1000000 frames; allowed: at most"),
    (show(size={"height": 32, "width": 32}), UNSEEN), (show(image_mean=[0.5, 0.5]), UNSEEN),
    (show(patch_size="a"), UNSEEN),
    (show(image_processor_type="CLIPImageProcessor"), "CLIPImageProcessor cannot show a picture"),
    (move_template(str), None),  # sgl-project/SpecForge PR 480
    (move_template(lambda own: [{"name": "a", "template": "x"}, {"name": "default", "template": own}]), None),
    (move_template(lambda own: {"rag": "x", "default": own}), None),
    (move_template(lambda own: {"rag": own}), "the chat template cannot render"),
    (move_template(str, "chat_template.json"), None),
])  # fmt: skip
def test_a_folder_plays_or_is_refused_by_name(tmp_path, change, words):
    shutil.copytree(resolve_model_path("package:tiny_viewer"), tmp_path / "model")
    change(tmp_path / "model")
    section = ModelSection(name=str(tmp_path / "model"))
    try:
        config, processor = load_processor(section)
        found = ChatTokens(processor, config).template.end
        load_model(section, with_numbers=False)
    except ModelError as error:
        found = f"{error.key}: {error}"
    assert (words or "<|im_end|>") in found
    assert found.startswith("model.name: " if words else "<|im_end|>")


@each("token, plays", [(128_256, True), (128_263, True), (128_264, False)])
def test_the_embedding_says_how_many_rows_it_has(token, plays):
    """Llama 3.2 Vision has vocab_size 128,256 and 128,264 rows: <|image|> is token 128,256."""
    config, tokenizer = MllamaConfig(), SimpleNamespace(get_vocab=lambda: {"<|image|>": token})
    assert (describe_tokens(config, tokenizer, lambda: _build_embedding(config)) is None) == plays


@each("load", [load_model, partial(find_model_shapes, max_pixels=64 * 64)])
def test_every_reader_of_a_config_refuses_code_of_a_hub(tmp_path, load):
    shutil.copytree(resolve_model_path("package:tiny_viewer"), tmp_path / "model")
    edit("config.json", _attn_implementation="evil/kernel")(tmp_path / "model")
    with pytest.raises(ModelError, match=CODE_OF_HUB):
        load(ModelSection(name=str(tmp_path / "model")))
