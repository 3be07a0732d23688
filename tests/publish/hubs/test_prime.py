"""`--to prime` with the real command and a loopback hub. Needs `prime` on the PATH: `make test-prime`."""

import hashlib
import io
import json
import shutil
import zipfile

import pytest

from tests.support.hub_server import HubServer, cut, say, serve_hub
from tests.support.prime_hub import PrimeHub, read_archive, write_archive
from tests.support.publishing import list_contents
from viewbox.errors import ConfigError
from viewbox.publish import publish
from viewbox.publish.new import write_project
from viewbox.utils.secrets import find_key_form

KEY = "pit_" + "Secret1" * 6
NAME = "me/bright-dots"
pytestmark = pytest.mark.skipif(shutil.which("prime") is None, reason="needs the command prime: make test-prime")


@pytest.fixture
def prime(monkeypatch, tmp_path):
    with serve_hub(PrimeHub()) as hub:
        monkeypatch.setenv("PRIME_API_BASE_URL", hub.url)
        monkeypatch.setenv("PRIME_API_KEY", KEY)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        (tmp_path / "home").mkdir()
        monkeypatch.setattr("viewbox.publish.hubs.prime.WAIT", 0.01)
        yield hub


def send(dots, **more):
    seen = []
    given = {"to": "prime", "id": NAME, "license": "MIT", "confirm": lambda lines: seen.append(lines) or True, **more}
    return publish(dots, **given), "\n".join(seen[0]) if seen else ""


def read_source(hub, version="0.1.0"):
    found = hub.environments[NAME]
    return read_archive(found["sources"][found["versions"][version]]["content"])


def read_wheel(hub):
    (wheel,) = hub.environments[NAME]["wheels"].values()
    with zipfile.ZipFile(io.BytesIO(wheel["content"])) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_source_and_wheel_arrive_as_listed_with_hashes_metadata_and_floors(prime, dots, tmp_path):
    package, listed = send(dots, license="MIT")
    assert listed.endswith(
        f"to https://app.primeintellect.ai/dashboard/environments/{NAME} (private, by the server {prime.url})"
    )
    found, source, wheel = prime.environments[NAME], read_source(prime), read_wheel(prime)
    assert found["visibility"] == "PRIVATE"
    assert set(source) == {line.split()[1] for line in listed.splitlines()[:-1]}
    assert package.files == len(source)
    assert {name for name in source if name.startswith("bright_dots/")} <= set(wheel)
    (uploaded,) = found["wheels"].values()
    assert hashlib.sha256(uploaded["content"]).hexdigest() == uploaded["sha256"]
    assert uploaded["filename"] == "bright_dots-0.1.0-py3-none-any.whl"
    assert (uploaded["semantic_version"], uploaded["runtime_hint"]) == ("0.1.0", "VERIFIERS_V1")
    about = uploaded["metadata"]
    assert (about["license"], about["description"]) == ("MIT", "How bright is the field?")
    assert "verifiers>=0.4,<0.5" in about["dependencies"]
    assert all(">=" in line for line in about["dependencies"])
    assert about["tags"][0] == "viewbox"
    assert uploaded["done"]
    for name, content in list_contents({**source, **wheel}):
        assert find_key_form(content.decode("latin-1")) is None, name
        assert str(tmp_path).encode() not in content, name
        assert KEY.encode() not in content, name
    assert any("downloaded again: all" in line for line in package.findings)


@pytest.mark.usefixtures("linked", "unchecked")
def test_a_new_project_is_pushed_pulled_and_installed_with_its_license(prime, tmp_path):
    demo = write_project("demo", tmp_path)
    package, listed = send(str(demo), license=None)
    license = (demo / "LICENSE").read_bytes()
    assert read_source(prime)["bright_dots/licenses/LICENSE"] == license
    assert read_wheel(prime)["bright_dots-0.1.0.dist-info/licenses/bright_dots/licenses/LICENSE"] == license
    assert package.files == len(listed.splitlines()) - 1 <= 10
    assert package.findings[-1].startswith("installed from there into a fresh environment")


@pytest.mark.parametrize("public", [True, False])
def test_who_may_read_it_is_as_asked_or_refused(prime, dots, public):
    send(dots, public=public)
    assert prime.environments[NAME]["visibility"] == ("PUBLIC" if public else "PRIVATE")
    with pytest.raises(ConfigError, match=f"is {'public' if public else 'private'}, not"):
        send(dots, public=not public, bump="patch")


BUSY, SLOW = say(503, {"detail": "busy"}), say(429, {"detail": "slow"})


@pytest.mark.parametrize(
    ("where", "fault"), [("/resolve", BUSY), ("PUT /store/env0/wheels", SLOW), ("/finalize", cut), ("@0.1.0", BUSY)]
)
def test_one_fault_is_overcome(prime, dots, where, fault):
    prime.faults.append((where, fault))
    send(dots)
    assert not prime.faults
    assert list(prime.environments[NAME]["versions"]) == ["0.1.0"]


def test_a_hub_that_only_fails_is_reported_without_the_key(prime, dots):
    prime.faults += [("PUT /store", say(500, {"detail": f"you sent {KEY}"}))] * 9
    prime.faults += [("/resolve", say(500, {"detail": f"you sent {KEY}"}))]
    with pytest.raises(ConfigError, match=r"`prime env push` ended with 1: .*run the command again") as caught:
        send(dots)
    assert KEY not in str(caught.value)
    assert not prime.environments[NAME]["versions"]


def test_a_refusal_is_reported_at_once_without_the_key(prime, dots):
    prime.faults += [("/resolve", say(403, {"detail": f"{KEY} may not write"}))] * 3
    with pytest.raises(ConfigError, match="HTTP 403") as caught:
        send(dots)
    assert KEY not in str(caught.value)
    assert len(prime.find("/resolve")) == 1


@pytest.mark.parametrize(("lie", "words"), [
    (lambda files: {**files, "bright_dots/__init__.py": b"print(1)"}, "has other content"),
    (lambda files: {**files, "bright_dots/more.py": b"1"}, "was never sent"),
    (lambda files: {name: one for name, one in files.items() if name != "README.md"}, "README.md is missing"),
    (lambda files: {**files, "../out.py": b"1"}, "Failed to extract"),
])  # fmt: skip
def test_other_content_than_was_sent_is_found(prime, dots, lie, words):
    prime.change = lambda kind, content: write_archive(lie(read_archive(content))) if kind == "source" else content
    with pytest.raises(ConfigError, match=words):
        send(dots)


def test_a_redirect_to_another_host_takes_no_key_along(prime, dots):
    with serve_hub(HubServer()) as other:
        prime.faults.append(("/resolve", say(307, {}, Location=f"{other.url}/elsewhere")))
        with pytest.raises(ConfigError):
            send(dots)
    assert other.requests
    assert not any(KEY in json.dumps(headers) for _, _, headers, _ in other.requests)


def test_without_a_key_the_command_says_how_to_log_in(prime, dots, monkeypatch):
    monkeypatch.delenv("PRIME_API_KEY")
    with pytest.raises(ConfigError, match="prime login"):
        send(dots)
    assert not prime.environments


def test_a_file_that_the_command_would_leave_out_is_refused(prime, tmp_path, dots, monkeypatch):
    (tmp_path / "field" / "build").mkdir(parents=True)
    (tmp_path / "field" / "__init__.py").write_text((tmp_path / "spots.py").read_text())
    (tmp_path / "field" / "build" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"_vendor/field/build/__init__\.py: `prime env push` leaves out"):
        send("field:Dots")
    assert not prime.find("^(POST|PUT)")


@pytest.mark.usefixtures("linked", "unchecked")
def test_another_wheel_than_was_sent_is_found(prime, spots):
    def swap(kind, content):
        if kind != "wheel":
            return content
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
            for name in old.namelist():
                if not name.endswith("RECORD"):
                    new.writestr(name, b"print(1)" if name == "bright_dots/spots.py" else old.read(name))
            new.writestr("bright_dots-0.1.0.dist-info/RECORD", "")
        return out.getvalue()

    prime.change = swap
    with pytest.raises(ConfigError, match=r"installs something else than was sent: spots\.py has other content"):
        send(spots, public=True)
