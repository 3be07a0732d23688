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


def check(capsys, folder, **options):
    rollout(check_model=True, model=str(folder), **options)
    lines = capsys.readouterr().out.splitlines()
    return {line[:14].strip(): line[14:].strip() for line in lines if not line.startswith("note")}, lines


def test_it_says_how_a_model_plays_and_how_far_the_engine_differs(folder, capsys):
    found, lines = check(capsys, folder)
    assert found["plays"] == "on the engine's cache (full_attention)"
    assert found["pictures"].startswith("224 x 224: 16 tokens")
    assert found["end of reply"] == "</s> (the chat template writes none)"
    assert found["tool pictures"] == "in a user message"
    assert found["weights"].startswith("float32; engine and the model's own forward differ by ")
    assert any("writes no end token after replies" in line for line in lines)


def test_without_weights_it_says_that_only_the_rest_was_asked(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors"))
    assert "none in the folder" in check(capsys, tmp_path / "bare")[0]["weights"]


def test_a_template_that_drops_the_picture_of_a_tool_is_an_error(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "drops")
    path = tmp_path / "drops" / "chat_template.jinja"
    path.write_text(path.read_text().replace("{{ '<image>\\n' }}", "{{ '<image>\\n' if messages | length < 3 }}"))
    with pytest.raises(ModelError, match="the chat template drops the image of a tool result"):
        rollout(check_model=True, model=str(tmp_path / "drops"))


def test_weights_that_are_no_numbers_are_an_error(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "broken")
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith("norm.weight"))
    weights[name] *= float("nan")
    save_file(weights, tmp_path / "broken" / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="NaN or infinity"):
        rollout(check_model=True, model=str(tmp_path / "broken"))


def test_a_server_has_no_weights_to_look_at(folder):
    with pytest.raises(ConfigError, match="leave out --endpoint"):
        rollout(check_model=True, model=str(folder), endpoint="http://127.0.0.1:9/v1")
