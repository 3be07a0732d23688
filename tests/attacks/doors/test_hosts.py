"""URLs that look like this machine, and keys that are asked for by another: which key goes where."""

import asyncio
import re
import socket
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.support.servers import make_completion, make_response, make_script, serve
from tests.support.tables import each
from viewbox.engines.openai.client import EndpointError, OpenAIGenerator, build_completions_url
from viewbox.envs.digits import Digits, viewer
from viewbox.errors import ConfigError
from viewbox.network.data_policy import is_this_machine
from viewbox.network.hosts import is_loopback, parse_url, read_api_key
from viewbox.rewards import build
from viewbox.rollouts.play import play_many

ENV = Digits()
PACKAGE = Path(__file__).parents[3]
RIGHT = viewer.write_answer(ENV, ENV.tasks[0])
KEY = "sk-proj-Zx91Yw82Vu73Ts64Rq55Po46"

HERE = [
    "http://127.0.0.1:8000/v1", "https://127.255.255.254/", "http://LOCALHOST:1/v1", "http://[0:0:0:0:0:0:0:1]",
    "http://[::ffff:7f00:1]", "http://127.1", "http://0x7f.1", "http://2130706433", "http://017700000001",
]  # fmt: skip
ELSEWHERE = [
    "http://0.0.0.0:8000/v1", "http://0", "http://[::]", "http://localhost.evil.com", "http://evil.localhost",
    "http://localhost.", "http://127.0.0.1.", "http://127.0.0.1.nip.io", "http://0127.0.0.1", "http://128.0.0.1",
    "http://169.254.169.254/latest/meta-data", "http://[::ffff:10.0.0.1]", "http://[::127.0.0.1]",
    "http://[64:ff9b::7f00:1]", "http://[fe80::1]", "http://xn--localhst-4wb.com", "http://local_host",
    "https://api.openai.com/v1",
]  # fmt: skip
REFUSED = [
    "", "localhost:8000", "127.0.0.1:8000/v1", "//localhost", "http:/localhost", "http:///v1", "http://:8000",
    "file:///etc/passwd", "http+unix://localhost", "javascript:alert(1)", "http://127.0.0.1:8000@evil.com/v1",
    "http://evil.com#@localhost", "http://evil.com?@localhost", "http://localhost?key=sk-1", "http://localhost/#x",
    "http://localhost\\@evil.com", "http://evil.com\\localhost", "http://localhost/v1\\x", "http://localhost /v1",
    " http://localhost", "http://localhost\n", "http://local\thost", "http://localhost\x00.evil.com",
    "http://%31%32%37.0.0.1", "http://localhost%2eevil.com", "http://127。0。0。1", "http://１２７.0.0.1",
    "http://ⓛocalhost", "http://locаlhost",  # Cyrillic
    "http://127.0.0.1:", "http://localhost:0", "http://localhost:65536", "http://localhost:+80",
    "http://localhost:８０", "http://localhost:80:80", "http://[::1", "http://::1/", "http://[::1]evil.com",
    "http://[::1%25lo]", "http://[127.0.0.1]", "http://[v1.x]", "http://[1:2:3:4:5:6:7:8:9]", "http://a..b",
    "http://.localhost", "http://-localhost", "http://" + "a" * 64 + ".com", "http://" + "a." * 200 + "com",
    "http://localhost/ä", "http://localhost/\ud800", None, b"http://localhost", "http://me:hunter2@host/v1",
    "http://host/v1?key=hunter2", "http://host/#hunter2", "hunter2@host",
]  # fmt: skip


@each("url, here", [*((url, True) for url in HERE), *((url, False) for url in ELSEWHERE)])
def test_this_machine_by_whatever_name_and_another_that_looks_like_it(url, here):
    assert (is_loopback(url), is_this_machine(url) and not here) == (here, False)
    if here:
        address = socket.getaddrinfo(parse_url(url).host, 80)[0][4][0]
        assert address in ("127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1")
    with suppress(ConfigError):  # nothing else may be raised
        built = build_completions_url(url)
        assert httpx.URL(built).raw_host.decode() == parse_url(url).host  # the client goes where the check looked


@each("url", REFUSED)
def test_what_two_readers_could_read_differently_is_refused_and_no_password_is_repeated(url):
    for read in (is_loopback, parse_url, *([build_completions_url] if isinstance(url, str) else [])):
        with pytest.raises(ConfigError) as caught:
            read(url)
        assert "hunter2" not in str(caught.value)
    assert not is_this_machine(url)


# ---------------------------------------------------------------------- one place decides
def test_every_http_client_of_the_package_is_set_up_in_one_place():
    written_by = {name: [] for name in ("trust_env=", '"trust_env"', "follow_redirects=", "CookieJar(", "urlsplit(")}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith(".") or place.split("/")[0] in ("tests", "benchmarks", "build", "dist"):
            continue  # environments of other tests are folders like .venv-verl
        text = path.read_text()
        for client in re.findall(r"httpx2?\.(?:AsyncClient|Client|get|post|request|stream)\([^#]*?\n", text):
            assert "build_client_settings" in text, (place, client)
        for word, places in written_by.items():
            if word in text:
                places.append(place)
    assert written_by == {
        "trust_env=": ["network/public.py"],  # none
        '"trust_env"': ["network/http.py"],
        "follow_redirects=": [],
        "CookieJar(": ["integrations/verifiers.py", "network/http.py"],  # that one is of aiohttp
        # of the user's own catalogue, which is asked nothing, and of W&B's own variable, to see whether it can log in
        "urlsplit(": ["envs/software_adviser/catalogue.py", "training/reporting/tracking.py"],
    }


# ---------------------------------------------------------------------- which key goes where
def test_the_default_key_goes_to_openai_only(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert [read_api_key(f"https://{host}/v1", None) for host in ("api.openai.com", "API.openai.com:443")] == [KEY] * 2
    for url in (
        "http://localhost/v1", "http://api.openai.com/v1", "https://api.openai.com.evil.com/v1",
        "https://evil-api.openai.com/v1", "https://api.openai.com./v1", "https://openai.com/v1",
        "https://example.org/api.openai.com",
    ):  # fmt: skip
        assert read_api_key(url, None) is None


@each("name", [
    "GITHUB_TOKEN", "GH_TOKEN", "GITLAB_API_TOKEN", "HF_API_KEY", "HUGGINGFACEHUB_API_TOKEN", "AWS_SECRET_ACCESS_KEY",
    "AWS_API_KEY", "SSH_AUTH_SOCK", "SSH_API_KEY", "WANDB_API_KEY", "COMET_API_KEY", "NEPTUNE_API_TOKEN",
    "KAGGLE_API_TOKEN", "NPM_API_TOKEN", "PYPI_API_TOKEN", "TWINE_PASSWORD", "SLACK_API_TOKEN", "STRIPE_API_KEY",
    "CLOUDFLARE_API_TOKEN", "HOME", "PRIVATE_KEY", "SECRET", "TOKEN", "KEY", "api_key_but_not", "API_KEY_FILE",
    "API_KEY\n", "", " ", "MY-API_KEY", "MY API_KEY", "ÄPI_KEY", "CF_API_TOKEN", "DIGITALOCEAN_API_TOKEN",
    "VAULT_API_TOKEN", "JIRA_API_TOKEN", "NEW_RELIC_API_KEY", "vercel_api_token", "CI_JOB_API_TOKEN",
])  # fmt: skip
def test_variables_that_hold_other_secrets_are_not_read(monkeypatch, name):
    if name.strip():
        monkeypatch.setenv(name, KEY)
    for chosen in (True, False):
        with pytest.raises(ConfigError) as caught:
            read_api_key("https://example.org/v1", name, chosen=chosen)
        assert KEY not in str(caught.value)


def test_variables_made_for_a_server_are(monkeypatch):
    for name in ["MY_API_KEY", "API_KEY", "VLLM_API_TOKEN", "JUDGE_KEY", "LAB_JUDGE_KEY", "my_api_key"]:
        monkeypatch.setenv(name, f" {KEY}\n")
        assert read_api_key("https://example.org/v1", name) == KEY
        assert read_api_key("http://localhost:1/v1", name) == KEY


@each("url", ["http://example.org/v1", "http://0.0.0.0:1/v1", "http://localhost.evil.com", "http://192.168.0.7:80/v1"])
def test_no_key_travels_unencrypted(monkeypatch, url):
    monkeypatch.setenv("MY_API_KEY", KEY)
    for send in (
        lambda: read_api_key(url, "MY_API_KEY", chosen=True), lambda: read_api_key(url, "MY_API_KEY", chosen=False),
        lambda: OpenAIGenerator(url, "m", api_key=KEY),
        lambda: OpenAIGenerator(url, "m", extra={"nested": [{"api_key": KEY}]}),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="not sent over http to another machine"):
            send()


def test_a_file_cannot_send_a_providers_key_to_another_host(monkeypatch):
    for name in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"]:
        monkeypatch.setenv(name, KEY)
        with pytest.raises(ConfigError, match="this key goes to"):
            read_api_key("https://judge.example/v1", name)
        with pytest.raises(ConfigError, match="this key goes to"):
            build({"type": "judge", "endpoint": "https://judge.example/v1", "model": "m", "api_key_env": name})
        assert read_api_key("https://judge.example/v1", name, chosen=True) == KEY


# ---------------------------------------------------------------------- what really arrives
def play(url, **settings):
    async def one():
        generator = OpenAIGenerator(url, "m", first_pause=0.001, **settings)
        try:
            return [episode async for episode in play_many(ENV, ENV.tasks[:1], generator)]
        finally:
            await generator.close()

    return asyncio.run(one())


@each("code", [301, 302, 303, 307, 308])
def test_the_key_does_not_follow_a_redirect(code):
    with serve(make_script(make_completion(RIGHT))) as other:
        moved = make_response(code, {}, Location=other.url.replace("127.0.0.1", "localhost") + "/chat/completions")
        with serve(make_script(moved)) as server, suppress(EndpointError):
            assert play(server.url, api_key=KEY)[0].end_reason == "error"
    assert server.requests[0]["headers"]["Authorization"] == f"Bearer {KEY}"
    assert other.requests == []


@each("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_proxy_of_the_environment_sees_no_key(variable):
    with pytest.MonkeyPatch.context() as patch, serve(lambda body, number: make_response(502)) as proxy:
        for name in ("NO_PROXY", "no_proxy"):
            patch.delenv(name, raising=False)
        patch.setenv(variable, proxy.url)
        (episode,) = play("https://api.example.org/v1", api_key=KEY, attempts=1)
    assert episode.end_reason == "error"
    assert proxy.requests[0]["path"] == "api.example.org:443"  # CONNECT
    assert KEY not in str(proxy.requests)


def test_requests_to_this_machine_use_no_proxy(monkeypatch):
    with serve(dict) as proxy, serve(make_script(make_completion(RIGHT))) as server:
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(variable, proxy.url)
        assert play(server.url, api_key=KEY)[0].end_reason == "answered"
    assert proxy.connections == []
    assert len(server.requests) == 1


@each("more", [(), ("endpoint.api_key_env=GITHUB_TOKEN",)])
def test_the_command_sends_no_key_that_was_not_named(viewbox, tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GITHUB_TOKEN", KEY)
    with serve(make_script(make_completion(RIGHT))) as server:
        given = ("rollout", "--env", "digits", "--model", "m", "--tasks", 1, "--endpoint", server.url, *more)
        code, out, err = viewbox(*given)
    assert code == (2 if more else 0)
    assert KEY not in out + err
    assert not [one for one in server.requests if "Authorization" in one["headers"]]
    assert bool(server.requests) == (not more)
