"""A key that comes back, as it is or escaped: nothing that is written or shown holds it."""

import json
import os
import time
from urllib.parse import quote, unquote

import pytest
import yaml

from tests.support.servers import make_completion, make_response, make_script, serve
from tests.support.tables import each
from viewbox.configs.schema import Config
from viewbox.engines.openai.client import OpenAIGenerator
from viewbox.envs.digits import Digits, viewer
from viewbox.rollouts.store.columns import ScoreColumnWriter
from viewbox.rollouts.store.reader import load
from viewbox.training.reporting.model_card import write_card
from viewbox.utils import exit_status, secrets

ENV = Digits()
RIGHT = viewer.write_answer(ENV, ENV.tasks[0])
KEY = "sk-proj-Zx91Yw82Vu73Ts64Rq55Po46Nm37Lk28"


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """Only this test's key is known."""
    monkeypatch.setattr(secrets, "_known", {KEY})


FORMS = [
    KEY, f"Authorization: Bearer {KEY}", KEY + KEY, f"x{KEY}x",
    f"İİİ{KEY}", f"\ud800{KEY}",  # after letters that change length, after half of one
    f"https://evil.com/?q={KEY}&x=1", "".join(f"%{byte:02x}" for byte in KEY.encode()),
    "".join(f"%{ord(c):02X}" if i % 3 else c for i, c in enumerate(KEY)),
    "".join(f"%25{byte:02x}" for byte in KEY.encode()),
    json.dumps(json.dumps({"k": KEY})), "".join(f"\\u{ord(c):04x}" for c in KEY),
    json.dumps(json.dumps("".join(f"\\u{ord(c):04X}" for c in KEY))),
]  # fmt: skip


def is_shown(text):
    """Whether the key can be read in a text: at once, as JSON, or as part of a URL."""
    plain = text.replace("\\\\", "\\").encode("ascii", "replace").decode("unicode_escape", "ignore")
    return any(KEY in one for one in (text, unquote(unquote(text)), plain))


@each("text", FORMS)
def test_a_key_is_masked_in_every_form(text):
    masked = secrets.mask_text(text)
    assert secrets.MASK in masked
    assert not is_shown(masked)
    assert "Zx91" not in masked
    assert secrets.mask_text(masked) == masked


@each("key", ['pass"word/12345\\x', "Schlüssel mit Ümlaut 9", "a+b=c&d%25e12345", "𝐤𝐞𝐲-1234567890"])
def test_a_key_with_special_characters_is_masked_as_json_and_urls_write_it(monkeypatch, key):
    monkeypatch.setattr(secrets, "_known", {key})
    texts = (json.dumps(key), json.dumps(key, ensure_ascii=False), json.dumps(json.dumps(key)), quote(key, safe=""))
    for text in texts:
        assert secrets.mask_text(f"<{text}>").strip('<>\\"') == secrets.MASK


PLAIN = [
    "", "Nodule in the left upper lobe, 12 mm.", "sk-proj-", "the key", "Zx91Yw82 is a room", "***",
    '{"label": "seven", "bbox": [0.1, 0.2, 0.3, 0.4]}', "a" * 5000, "0123456789" * 500, "İstanbul \ud800 \u200b 漢字",
]  # fmt: skip


def test_other_text_is_left_alone_and_a_placeholder_is_no_key(monkeypatch):
    assert [secrets.mask_text(text) for text in PLAIN] == PLAIN
    for placeholder in ("EMPTY", "none", "x", "1", "test", "dummy", "-", "sk-1"):
        monkeypatch.setattr(secrets, "_known", set())
        secrets.remember(placeholder)
        text = f"{placeholder} is what {placeholder.lower()} says about an empty dummy test"
        assert secrets.mask_text(text) == text


def test_all_texts_of_a_value_are_masked():
    assert secrets.mask_values({KEY: [KEY, 1, None, True, (KEY,)]}) == {"***": ["***", 1, None, True, ["***"]]}


@pytest.mark.timeout(60)
def test_masking_is_quick_whatever_the_text():
    start = time.process_time()
    for text in ("a=", "{a:", "'a':", "k", "sk-", "eyJ-", "\\", "\\u0073", "%25"):
        secrets.mask_assignments(text * 50_000)
        secrets.mask_settings({"a": text * 50_000})
    for unit in ("a_", "aB", "hub_token", "secret_x_", "_"):
        for name in (unit * 10_000, unit * 10_000 + "!", "x" + unit * 10_000 + "y"):
            secrets.is_secret_name(name)
            secrets.mask_settings({name: "value"})
            secrets.mask_override(f"env.{name}=value")
    assert time.process_time() - start < 20


# ---------------------------------------------------------------------- a server that repeats the key
@each("reply", [
    make_completion([{"type": "text", "text": text} for text in (KEY[:20], KEY[20:])]),
    make_completion("", ("a", KEY, "{}")),
    make_completion("", ("a", "zoom", '{"factor": "' + "".join(f"\\u{ord(c):04x}" for c in KEY) + '"}')),
    make_response(400, {"error": {"message": f"bad {KEY}"}}),
    make_response(301, "", Location=f"https://evil.com/{KEY}"),
    make_completion(RIGHT, usage={"completion_tokens": KEY, KEY: 1}),
])  # fmt: skip
def test_a_key_that_a_server_repeats_is_in_no_file_and_no_output(viewbox, tmp_path, monkeypatch, reply):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_API_KEY", KEY)
    monkeypatch.setitem(OpenAIGenerator.__init__.__kwdefaults__, "attempts", 2)
    # the first reply is good: before it, some errors end the run
    with serve(make_script(make_completion(RIGHT), reply)) as server:
        given = ("--env", "digits", "--model", "m", "--tasks", 2, "--concurrency", 1, "--endpoint", server.url)
        more = ("env.max_turns=2", "endpoint.api_key_env=LAB_API_KEY", f"endpoint.extra.api_key={KEY}")
        code, out, err = viewbox("rollout", *given, *more, "--out", "run")
        assert code in (0, 2)
        assert server.requests[0]["headers"]["Authorization"] == f"Bearer {KEY}"
        assert server.requests[0]["body"]["api_key"] == KEY
    assert not is_shown(out + err)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".png"]
    assert {path.name for path in files} >= {"episodes.jsonl", "rollout.json", "config.yaml", "summary.json"}
    assert [path for path in files if is_shown(path.read_text())] == []
    assert len(list(load(tmp_path / "run" / "episodes"))) == 2


def test_a_key_is_not_in_a_crash(tmp_path, capsys):
    def fail():
        with exit_status.log_failures(tmp_path):
            raise ValueError(f"cannot use {KEY} nor hf_{'a1' * 12}")

    assert exit_status.guard(fail) == 1
    written = (tmp_path / exit_status.LOG).read_text() + capsys.readouterr().err
    assert "cannot use ***" in written
    assert not is_shown(written)
    assert "a1a1a1" not in written


# ---------------------------------------------------------------------- settings whose names say it
SECRET_NAMES = [
    "token", "key", "secret", "password", "apikey", "API_KEY", "x-api-key", "apiKey", "hubToken", "push_to_hub_token",
    "id_token", "access_key_id", "private_key", "ssh_key", "signing_key", "client_secret", "secrets", "passwd", "pwd",
    "passphrase", "credentials", "credential", "Authorization", "bearer", "cookie", "cookies", "jwt", "api_keys",
    "access_tokens", "secret_value", "my.token",
]  # fmt: skip
PLAIN_NAMES = [
    "max_tokens", "tokens", "tokenizer", "api_key_env", "key_names", "label_key", "confidence_key", "keys_of",
    "keyboard", "monkey", "eos_token", "pad_token", "image_token", "new_token", "max_new_tokens", "primary_key",
    "sort_key", "secretary", "passwordless", "author", "bearing", "cookiecutter", "endpoint",
    "average_tokens_across_devices",
]  # fmt: skip


@each("value", ["abc", "hunter 2", 12345, ["a", "b"], {"user": "me"}])
def test_settings_are_secrets_by_their_names(value):
    for name in SECRET_NAMES:
        masked = secrets.mask_settings({"train": {name: value}, "list": [{name: value}]})
        assert masked == {"train": {name: "***"}, "list": [{name: "***"}]}
    plain = dict.fromkeys(PLAIN_NAMES, value)
    assert secrets.mask_settings(plain) == plain
    for nothing in (None, "", [], {}, True, False):
        assert secrets.mask_settings({"api_key": nothing}) == {"api_key": nothing}


KEY_LIKE = [
    "sk-ant-api03-" + "Ab1" * 20, "sk-" + "Ab1" * 16, "sk-proj-" + "aB_-3" * 10, "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 9, "glpat-" + "a1B2" * 5, "hf_" + "aBcD" * 8, "AKIA" + "ABCD1234" * 2,
    "AIza" + "a1B2_" * 7, "xoxb-" + "123-abc-" * 3, "sk_live_" + "a1B2" * 6, "pypi-" + "AgEIcHlwaS5vcmc" * 3,
    "npm_" + "a1B2" * 9, "gsk_" + "a1B2" * 9, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "a1B2" * 9,
    "-----BEGIN OPENSSH PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----",
]  # fmt: skip


@each("value", KEY_LIKE)
def test_what_looks_like_a_key_is_masked_under_any_name(value):
    assert value not in json.dumps(secrets.mask_settings({"note": f"use {value} here", value: [value]}))
    assert value not in secrets.mask_assignments(f"error: {value}")


def config(**train):
    judge = {"type": "judge", "endpoint": "http://127.0.0.1:9/v1", "model": "m", "extra": {"api_key": "hunter2"}}
    sections = {"model": {"name": "package:tiny_viewer"}, "env": {"name": "digits"}, "reward": judge}
    return Config.model_validate({**sections, "train": {"hub_token": "hunter2hunter2", **train}})


def test_a_card_and_a_column_hold_no_secret(tmp_path):
    write_card(tmp_path, config(), {"held_out": {}})
    with ScoreColumnWriter(tmp_path, "judged", {"reward": config().reward}):
        pass
    for path in (tmp_path / "README.md", tmp_path / "scores" / "judged.jsonl"):
        assert "***" in path.read_text()
        assert "hunter2" not in path.read_text()


@each("given", [
    ["rollout.max_completion_tokens=2000", "--json"], ["train.hub_tokn=hunter2"], ["reward.extra={api_key: hunter2"],
])  # fmt: skip
def test_a_dry_run_shows_no_secret_and_no_refused_setting(viewbox, tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config().model_dump(mode="json", exclude_unset=True)))
    code, out, err = viewbox("train", "run.yaml", *given, "--dry-run")
    assert code == (0 if "--json" in given else 2)
    assert code or (err, json.loads(out)["config"]["train"]["hub_token"]) == ("", "***")
    if "tokn" not in given[0]:  # a name that nobody knows to be a secret's
        assert "hunter2" not in out + err


def test_the_trainers_arguments_hold_no_token(monkeypatch):
    from viewbox.training.trainer_args import build_trainer_arguments, pass_hub_token

    monkeypatch.setenv("HF_TOKEN", "another")
    whole = config(use_cpu=True, bf16=False)
    arguments = build_trainer_arguments(whole, "runs")
    assert arguments.hub_token is None
    pass_hub_token(whole)
    assert os.environ["HF_TOKEN"] == "hunter2hunter2"
    assert "hunter2hunter2" in secrets._known
