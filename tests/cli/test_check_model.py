"""`viewbox rollout --model FOLDER --check-model`: how a model works here, before anything is played."""

import shutil

import pytest
from safetensors.torch import load_file, save_file

from tests.support.families import save_family
from viewbox.cli.play import rollout
from viewbox.errors import ConfigError, ModelError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_family("llava", tmp_path_factory.mktemp("models") / "llava")


def check(folder, **options):
    rollout(check_model=True, model=str(folder), **options)


def read(capsys):
    lines = capsys.readouterr().out.splitlines()
    return {line[:14].strip(): line[14:].strip() for line in lines if not line.startswith("note")}, lines


def test_it_says_how_a_model_plays_how_far_the_engine_differs_and_what_was_not_asked(folder, tmp_path, capsys):
    check(folder)
    found, lines = read(capsys)
    assert found["plays"] == "on the engine's cache (full_attention)"
    assert found["pictures"].startswith("224 x 224: 16 tokens")
    assert found["end of reply"] == "</s> (the chat template writes none)"
    assert found["tool pictures"] == "in a user message"
    assert found["weights"].startswith("float32; engine and the model's own forward differ by ")
    assert any("writes no end token after replies" in line for line in lines)
    shutil.copytree(folder, tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors"))
    check(tmp_path / "bare")
    assert "none in the folder" in read(capsys)[0]["weights"]


def test_a_template_that_drops_pictures_weights_that_are_no_numbers_and_a_server_are_errors(folder, tmp_path):
    path = shutil.copytree(folder, tmp_path / "drops") / "chat_template.jinja"
    path.write_text(path.read_text().replace("{{ '<image>\\n' }}", "{{ '<image>\\n' if messages | length < 3 }}"))
    with pytest.raises(ModelError, match="the chat template drops the image of a tool result"):
        check(tmp_path / "drops")
    path = shutil.copytree(folder, tmp_path / "broken") / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if name.endswith("norm.weight"))
    save_file({**weights, name: weights[name] * float("nan")}, path, {"format": "pt"})
    with pytest.raises(ModelError, match="NaN or infinity"):
        check(tmp_path / "broken")
    with pytest.raises(ConfigError, match="leave out --endpoint"):  # a server has no weights to look at
        check(folder, endpoint="http://127.0.0.1:9/v1")
