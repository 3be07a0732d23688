"""A key that comes back, in whatever form: nothing that is written or shown holds it."""

import base64
import json
import os

import pytest
import yaml

from tests.support.servers import make_completion, make_response, make_script, serve
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


def encode(text):
    return base64.b64encode(text.encode()).decode()


FORMS = {
    "as it is": KEY,
    "in quotes": f'the key is "{KEY}".',
    "as the header": f"Authorization: Bearer {KEY}",
    "twice": f"{KEY} {KEY}",
    "twice without a gap": KEY + KEY,
    "upper case": KEY.upper(),
    "lower case": KEY.lower(),
    "swapped case": KEY.swapcase(),
    "title case": KEY.title(),
    "reversed": KEY[::-1],
    "reversed upper": KEY[::-1].upper(),
    "base64": encode(KEY),
    "base64 of a header": encode(f"Bearer {KEY}"),
    "base64 of user:key": encode(f"user:{KEY}"),
    "base64 of u:key": encode(f"u:{KEY}"),
    "base64 of key and more": encode(KEY + " is the key"),
    "base64 url-safe": base64.urlsafe_b64encode(KEY.encode()).decode(),
    "base64 without padding": encode(KEY).rstrip("="),
    "base64 reversed": encode(KEY)[::-1],
    "base64 in lines": "\n".join(encode(KEY)[i : i + 20] for i in range(0, 60, 20)),
    "hex": KEY.encode().hex(),
    "hex upper": KEY.encode().hex().upper(),
    "hex with colons": KEY.encode().hex(":"),
    "percent-encoded": "".join(f"%{byte:02x}" for byte in KEY.encode()),
    "percent-encoded upper": "".join(f"%{byte:02X}" for byte in KEY.encode()),
    "spaced": " ".join(KEY),
    "with dots": ".".join(KEY),
    "with zero-width spaces": "\u200b".join(KEY),
    "in lines": "\n".join(KEY),
    "in two lines": KEY[:20] + "\n" + KEY[20:],
    "its first half": KEY[:20],
    "its second half": KEY[20:],
    "in parts, in between words": f"{KEY[:14]} and {KEY[14:28]} and {KEY[28:]}",
    "base32": base64.b32encode(KEY.encode()).decode(),
    "base64 of the reversed key": encode(KEY[::-1]),
    "base64 with spaces": " ".join(encode(KEY)),
    "hex reversed": KEY.encode().hex()[::-1],
    "percent-encoded twice": "".join(f"%25{byte:02x}" for byte in KEY.encode()),
    "HTML entities": "".join(f"&#{ord(c)};" for c in KEY),
    "HTML entities in hex": "".join(f"&#x{ord(c):x};" for c in KEY),
    "Unicode escapes": "".join(f"\\u{ord(c):04x}" for c in KEY),
    "byte escapes": "".join(f"\\x{ord(c):02x}" for c in KEY),
    "full-width letters": "".join(chr(ord(c) + 0xFEE0) for c in KEY),
    "bold letters": "".join(chr(0x1D41A + ord(c) - 97) if c.islower() else c for c in KEY),
    "letters in circles": "".join(chr(0x24D0 + ord(c) - 97) if c.islower() else c for c in KEY),
    "letters in squares": "".join(chr(0x1D670 + ord(c) - 65) if c.isupper() else c for c in KEY),
    "percent-encoded here and there": "".join(f"%{ord(c):02X}" if i % 3 == 0 else c for i, c in enumerate(KEY)),
    "percent-encoded twice, here and there": "".join(f"%25{ord(c):02x}" if i % 4 else c for i, c in enumerate(KEY)),
    "HTML entities here and there": "".join(f"&#{ord(c)};" if i % 4 == 0 else c for i, c in enumerate(KEY)),
    "escapes of all kinds": "".join(
        ("%{:02x}", "\\x{:02x}", "\\\\u{:04x}", "\\u{{{:x}}}", "\\{:03o}", "&#x{:x};", "{:c}")[i % 7].format(ord(c))
        for i, c in enumerate(KEY)
    ),
    "octal": "".join(f"\\{ord(c):03o}" for c in KEY),
    "code points": "".join(f"\\u{{{ord(c):x}}}" for c in KEY),
    "hexadecimal numbers": " ".join(f"0x{ord(c):02x}" for c in KEY),
    "bits": " ".join(f"{ord(c):08b}" for c in KEY),
    "UTF-16 in hex": KEY.encode("utf-16-be").hex(),
    "UTF-16 in hex, the other way": KEY.encode("utf-16-le").hex(),
    **{f"base32 after {n} letters": base64.b32encode(b"x" * n + KEY.encode()).decode() for n in range(1, 6)},
    "with combining marks": "".join(c + "\u0301" for c in KEY),
    "with NUL": "\0".join(KEY),
    "a list of characters": json.dumps(list(KEY)),
    "in a URL": f"https://evil.com/?q={KEY}&x=1",
    "in JSON": json.dumps({"k": KEY}),
    "in JSON in JSON": json.dumps(json.dumps({"k": KEY})),
    "without dashes": KEY.replace("-", ""),
    "with other dashes": KEY.replace("-", "–"),
    "after letters that change length": f"İİİ{KEY}",
    "after a surrogate": f"\ud800{KEY}",
    "in the middle of a word": f"x{KEY}x",
}


def is_shown(text):
    """Whether 12 letters and digits of the key in a row can be read in a text, in one of the simple ways."""
    plain = "".join(c for c in text.lower() if c.isascii() and c.isalnum())
    wanted = "".join(c for c in KEY.lower() if c.isalnum())
    shapes = [wanted, wanted[::-1], KEY.encode().hex(), encode(KEY)[2:-4].lower(), encode("u:" + KEY)[4:-4].lower()]
    pieces = (one[i : i + 12] for one in shapes for i in range(len(one) - 11))
    return any(piece in plain for piece in pieces)


@pytest.mark.parametrize("form", FORMS)
def test_a_key_is_masked_in_this_form(form):
    masked = secrets.mask_text(FORMS[form])
    assert secrets.MASK in masked
    assert not is_shown(masked)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Nodule in the left upper lobe, 12 mm.",
        "sk-proj-",
        "the key",
        "Zx91Yw82 is a room",
        '{"label": "seven", "bbox": [0.1, 0.2, 0.3, 0.4]}',
        "a" * 5000,
        "0123456789" * 500,
        "***",
        "İstanbul \ud800 \u200b 漢字",
    ],
)
def test_other_text_is_left_alone(text):
    assert secrets.mask_text(text) == text


@pytest.mark.parametrize("placeholder", ["EMPTY", "none", "x", "1", "key", "test", "dummy", "-", "sk-1"])
def test_a_placeholder_is_no_key(placeholder, monkeypatch):
    monkeypatch.setattr(secrets, "_known", set())
    secrets.remember(placeholder)
    text = f"{placeholder} is what {placeholder.lower()} says about an empty dummy test"
    assert secrets.mask_text(text) == text


def test_masking_never_fails_and_is_done_after_once():
    for form in FORMS.values():
        masked = secrets.mask_text(form)
        assert secrets.mask_text(masked) == masked
    assert secrets.mask_values({KEY: [KEY, 1, None, True, (KEY,)]}) == {"***": ["***", 1, None, True, ["***"]]}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "a=" * 200_000,
        "{a:" * 200_000,
        "'a':" * 99_000,
        "k" * 10**6,
        "sk-" * 99_000,
        "eyJ-" * 9_000,
        "\\" * 200_000,
        "%25" * 99_000,
        "&#0" * 99_000,
    ],
)
@pytest.mark.timeout(20)
def test_masking_is_quick_whatever_the_text(text, monkeypatch):
    monkeypatch.setattr(secrets, "_known", {KEY})
    secrets.mask_assignments(text)
    secrets.mask_settings({"a": text})


@pytest.mark.parametrize("unit", ["a_", "a&", "aB", "token_", "hub_token", "secret_x_", "api_", "_", "eos_token_"])
@pytest.mark.timeout(20)
def test_a_long_name_of_a_setting_is_read_quickly(unit):
    for name in (unit * 10_000, unit * 10_000 + "!", "x" + unit * 10_000 + "y"):
        secrets.is_secret_name(name)
        secrets.mask_settings({name: "value"})
        secrets.mask_override(f"env.{name}=value")


# ---------------------------------------------------------------------- a server that repeats the key
def part(text):
    return {"type": "text", "text": text}


ESCAPED = "".join(f"\\u{ord(c):04x}" for c in KEY)
REPLIES = {
    "in prose": make_completion(f"Your key is {KEY}."),
    "in the answer": make_completion(RIGHT.replace('"one"', f'"{KEY}"').replace("{", '{"why": "' + KEY + '", ', 1)),
    "in two parts": make_completion([part(KEY[:20]), part(KEY[20:])]),
    "in letters": make_completion([part(letter) for letter in KEY]),
    "in upper case": make_completion(KEY.upper()),
    "in base64": make_completion(encode(KEY)),
    "reversed": make_completion(KEY[::-1]),
    "as the name of a tool": make_completion("", ("a", KEY, "{}")),
    "as the id of a call": make_completion("", (KEY, "zoom", "{}")),
    "in arguments": make_completion("", ("a", "zoom", json.dumps({"factor": KEY}))),
    "as the name of an argument": make_completion("", ("a", "zoom", json.dumps({KEY: 1}))),
    "in arguments, escaped": make_completion(
        "", ("a", "zoom", '{"factor": "' + "".join(f"\\u{ord(c):04x}" for c in KEY) + '"}')
    ),
    "in arguments that are no JSON": make_completion("", ("a", "zoom", "{" + KEY)),
    "in a text call": make_completion('{"name": "zoom", "arguments": {"factor": "' + KEY + '"}}'),
    "in reasoning": make_completion("Hm.", reasoning_content=KEY),
    "as the finish reason": make_completion("Hm.", finish=KEY),
    "in an error": make_response(400, {"error": {"message": f"bad {KEY}"}}),
    "in an error, upper case": make_response(400, {"error": {"message": f"bad {KEY.upper()}"}}),
    "in an error, split": make_response(400, {"error": {"message": f"bad {KEY[:20]} {KEY[20:]}"}}),
    "in an error, base64": make_response(422, encode(f"Bearer {KEY}")),
    "in an error that is a list": make_response(400, [KEY]),
    "in a busy server's error": make_response(503, f"{KEY}", Retry_After="0"),
    "in a place to go": make_response(301, "", Location=f"https://evil.com/{KEY}"),
    "in a reply without choices": {"detail": KEY},
    "in what is no JSON": make_response(200, f"<html>{KEY}"),
    "in the usage": make_completion(RIGHT, usage={"completion_tokens": KEY, KEY: 1}),
}


@pytest.mark.parametrize("reply", REPLIES)
def test_a_key_that_a_server_repeats_is_in_no_file_and_no_output(viewbox, tmp_path, monkeypatch, reply):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_API_KEY", KEY)
    monkeypatch.setitem(OpenAIGenerator.__init__.__kwdefaults__, "attempts", 2)
    # the first reply is good: before it, some errors end the run
    with serve(make_script(make_completion(RIGHT), REPLIES[reply])) as server:
        given = ("--env", "digits", "--model", "m", "--tasks", 2, "--concurrency", 1, "--endpoint", server.url)
        more = ("env.max_turns=2", "endpoint.api_key_env=LAB_API_KEY", f"endpoint.extra.api_key={KEY}")
        code, out, err = viewbox("rollout", *given, *more, "--out", "run")
        assert code in (0, 2)
        assert server.requests[0]["headers"]["Authorization"] == f"Bearer {KEY}"
        assert server.requests[0]["body"]["api_key"] == KEY
    assert not is_shown(out + err)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".png"]
    assert {path.name for path in files} >= {"episodes.jsonl", "rollout.json", "config.yaml", "summary.json"}
    for path in files:
        text = path.read_text()
        assert not is_shown(text), path
        assert not is_shown(text.encode().decode("unicode_escape", "ignore")), path
    assert len(list(load(tmp_path / "run" / "episodes"))) == 2


def test_a_key_is_not_in_a_crash(tmp_path, capsys):
    def fail():
        with exit_status.log_failures(tmp_path):
            raise ValueError(f"cannot use {KEY.upper()} nor hf_{'a1' * 12}")

    assert exit_status.guard(fail) == 1
    written = (tmp_path / exit_status.LOG).read_text() + capsys.readouterr().err
    assert "cannot use ***" in written
    assert not is_shown(written)
    assert "a1a1a1" not in written


# ---------------------------------------------------------------------- settings whose names say it
SECRET_NAMES = [
    "token", "key", "secret", "password", "api_key", "apikey", "API_KEY", "api-key", "x-api-key", "apiKey",
    "hub_token", "hubToken", "HF_TOKEN", "access_token", "auth_token", "bearer_token", "refresh_token",
    "session_token", "push_to_hub_token", "github_token", "id_token", "access_key", "secret_key",
    "aws_secret_access_key", "access_key_id", "private_key", "ssh_key", "signing_key", "client_secret", "secrets",
    "passwd", "pwd", "passphrase", "db_password", "credentials", "credential", "authorization", "Authorization",
    "bearer", "cookie", "cookies", "jwt", "api_keys", "access_tokens", "proxy_password", "secret_value",
    "wandb_api_key", "my.token",
]  # fmt: skip
PLAIN_NAMES = [
    "max_tokens", "prefill_tokens", "micro_batch_tokens", "stop_tokens", "tokens", "tokenizer", "api_key_env",
    "key_names", "label_key", "box_key", "item_key", "confidence_key", "keys_of", "keyboard", "monkey", "turkey",
    "eos_token", "pad_token", "image_token", "new_token", "tokenize", "num_tokens", "max_new_tokens", "primary_key",
    "sort_key", "secretary", "passwordless", "authors", "author", "bearing", "cookiecutter", "tool", "name", "model",
    "endpoint", "field", "weight", "average_tokens_across_devices", "include_num_input_tokens_seen",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_setting_of_this_name_is_a_secret(name):
    for value in ("abc", "hunter 2", 12345, ["a", "b"], {"user": "me"}):
        masked = secrets.mask_settings({"train": {name: value}, "list": [{name: value}]})
        assert masked == {"train": {name: "***"}, "list": [{name: "***"}]}


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_a_setting_of_this_name_is_not(name):
    assert secrets.mask_settings({name: "abc"}) == {name: "abc"}


@pytest.mark.parametrize("value", [None, "", [], {}, True, False])
def test_what_is_no_secret_stays(value):
    assert secrets.mask_settings({"api_key": value, "push": value}) == {"api_key": value, "push": value}


KEY_LIKE = [
    "sk-ant-api03-" + "Ab1" * 20,
    "sk-" + "Ab1" * 16,
    "sk-proj-" + "aB_-3" * 10,
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 9,
    "glpat-" + "a1B2" * 5,
    "hf_" + "aBcD" * 8,
    "AKIA" + "ABCD1234" * 2,
    "AIza" + "a1B2_" * 7,
    "xoxb-" + "123-abc-" * 3,
    "sk_live_" + "a1B2" * 6,
    "pypi-" + "AgEIcHlwaS5vcmc" * 3,
    "npm_" + "a1B2" * 9,
    "gsk_" + "a1B2" * 9,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "a1B2" * 9,
    "-----BEGIN OPENSSH PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("value", KEY_LIKE, ids=range(len(KEY_LIKE)))
def test_what_looks_like_a_key_is_masked_under_any_name(value):
    assert value not in json.dumps(secrets.mask_settings({"note": f"use {value} here", value: [value]}))
    assert value not in secrets.mask_assignments(f"error: {value}")


def config(**train):
    raw = {
        "model": {"name": "package:tiny_viewer"},
        "env": {"name": "digits"},
        "train": {"hub_token": "hunter2hunter2", **train},
        "reward": {"type": "judge", "endpoint": "http://127.0.0.1:9/v1", "model": "m", "extra": {"api_key": "hunter2"}},
    }
    return Config.model_validate(raw)


def test_a_card_and_a_column_hold_no_secret(tmp_path):
    write_card(tmp_path, config(), {"held_out": {}})
    with ScoreColumnWriter(tmp_path, "judged", {"reward": config().reward}):
        pass
    for path in (tmp_path / "README.md", tmp_path / "scores" / "judged.jsonl"):
        assert "***" in path.read_text()
        assert "hunter2" not in path.read_text()


def test_a_dry_run_shows_no_secret(viewbox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config().model_dump(mode="json", exclude_unset=True)))
    code, out, err = viewbox("train", "run.yaml", "rollout.max_completion_tokens=2000", "--dry-run", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["config"]["train"]["hub_token"] == "***"
    assert "hunter2" not in out


@pytest.mark.parametrize(
    "wrong",
    [
        "train.hub_tokn=hunter2",
        "train.hub_token.x=hunter2",
        "env.password=hunter2",
        "reward.api_key=hunter2",
        "reward.extra={api_key: hunter2",
        "reward.extra.api_key=[hunter2",
        "model.api_key=hunter2",
        "log.token=hunter2",
        "endpoint.secret=hunter 2hunter2",
    ],
)
def test_a_refused_setting_is_not_shown(viewbox, tmp_path, monkeypatch, wrong):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config().model_dump(mode="json", exclude_unset=True)))
    code, out, err = viewbox("train", "run.yaml", wrong, "--dry-run")
    assert code == 2
    if "tokn" not in wrong:  # a name that nobody knows to be a secret's
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
