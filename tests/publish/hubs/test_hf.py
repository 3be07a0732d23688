"""`--to hf` with the real client and a loopback hub: what is sent, and what becomes of faults and lies of the hub."""

import json

import pytest
import yaml
from PIL import Image

from tests.publish.hubs.conftest import KEY
from tests.support.hub_server import HubServer, cut, say, serve_hub
from tests.support.publishing import list_contents
from viewbox.errors import ConfigError
from viewbox.publish import publish
from viewbox.publish.contents import LIBRARY
from viewbox.publish.hubs.directory import MANIFEST
from viewbox.utils.secrets import find_key_form

REPO = ("dataset", "me/bright-dots")


def send(dots, **more):
    seen = []
    given = {"to": "hf", "id": "me/bright-dots", "license": "MIT", "confirm": lambda lines: seen.append(lines) or True}
    return publish(dots, **given | more), "\n".join(seen[0]) if seen else ""


def read_head(hub):
    return hub.repos[REPO].commits[-1]


def test_every_file_arrives_as_it_was_listed_in_a_private_dataset_with_a_tag_and_a_card(hf, dots, tmp_path):
    """The card has the license and tags by which the hub finds environments; no file a key or a path of here."""
    package, listed = send(dots)
    files, repo = read_head(hf), hf.repos[REPO]
    assert repo.private
    assert list(repo.tags) == ["v0.1.0"]
    assert set(files) - {MANIFEST} == {line.split()[1] for line in listed.splitlines()[:-1]}
    assert "bright-dots 0.1.0" in listed.splitlines()[-1]
    assert listed.splitlines()[-1].endswith(f"to {hf.url}/datasets/me/bright-dots (private)")
    assert package.files == len(files) - 1
    assert "downloaded again: all" in "\n".join(package.findings)
    _, header, text = files["README.md"].decode().split("---\n", 2)
    card = yaml.safe_load(header)
    assert card["license"] == "mit"
    assert {"rl-environment", "verifiers"} <= set(card["tags"])
    assert "# bright-dots" in text
    assert json.loads(hf.find("POST /api/validate-yaml")[0][3])["repoType"] == "dataset"
    contents = dict(list_contents(files))
    assert f"bright_dots/_vendor/{LIBRARY}/viewbox/core/base.py" in contents
    for name, content in contents.items():
        assert find_key_form(content.decode("latin-1")) is None, name
        assert not any(word.encode() in content for word in (str(tmp_path), KEY)), name


def test_large_files_go_through_the_hubs_storage_with_their_hash(hf, dots, tmp_path):
    Image.new("L", (9, 9), 3).save(tmp_path / "scan.png")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"image": "scan.png", "question": "Bright?", "answer": "no"}))
    columns = {name: name for name in ("image", "question", "answer")}
    _, listed = send("vqa", settings={"data": {"source": f"{tmp_path}/rows.jsonl", "columns": columns}})
    (image,) = (name for name in read_head(hf) if name.endswith(".png"))
    assert list(hf.blobs.values()) == [(tmp_path / "scan.png").read_bytes()]
    assert f"{image}  (data)" in listed
    assert "data files (2): bright_dots/data/" in listed


def test_a_version_that_is_there_is_refused_and_bumped_and_files_of_the_older_one_are_deleted_but_not_those_of_others(
    hf, dots
):
    send(dots)
    with pytest.raises(ConfigError, match=r"has it already; allowed: --version 0\.1\.1, or --bump patch"):
        send(dots)
    repo = hf.repos[REPO]
    manifest = json.loads(repo.commits[-1][MANIFEST])
    manifest["files"]["bright_dots/old.py"] = "0"
    repo.commits.append({**repo.commits[-1], "bright_dots/old.py": b"", MANIFEST: json.dumps(manifest).encode()})
    package, _ = send(dots, bump="minor", settings={"level": 9})
    assert package.version == "0.2.0"
    assert list(repo.tags) == ["v0.1.0", "v0.2.0"]
    assert b"'level': 9" in read_head(hf)["bright_dots/__init__.py"]
    assert "bright_dots/old.py" not in read_head(hf)
    repo.commits.append({**read_head(hf), "notes.txt": b"mine"})
    with pytest.raises(ConfigError, match=r"holds files of others \(notes\.txt\)"):
        send(dots, bump="patch")
    assert read_head(hf)["notes.txt"] == b"mine"
    assert len(repo.tags) == 2


@pytest.mark.parametrize("public", [True, False])
def test_who_may_read_it_is_as_asked_or_refused(hf, dots, public):
    send(dots, public=public)
    assert hf.repos[REPO].private is not public
    hf.repos[REPO].private = public
    with pytest.raises(ConfigError, match=f"is {'private' if public else 'public'}, not"):
        send(dots, public=public, bump="patch")
    assert len(hf.repos[REPO].tags) == 1


def test_a_dry_run_lists_and_nothing_leaves_if_nobody_agrees_or_without_a_key_or_a_stated_license(
    hf, dots, monkeypatch
):
    package, _ = send(dots, dry_run=True)
    assert any(line.endswith("bright_dots/__init__.py") for line in package.findings)
    for confirm in (lambda lines: False, None):
        with pytest.raises(ConfigError, match="nothing was sent"):
            send(dots, confirm=confirm)
    with pytest.raises(ConfigError, match="nothing states the license of spots:Dots, and --to hf needs one"):
        send(dots, license=None)
    for id in (None, "dots", "a/b/c", "me/../x", "/x", "me/", "me/r uns", "-me/x", "me/" + "r" * 200):
        with pytest.raises(ConfigError, match="owner/name"):
            send(dots, id=id)
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(ConfigError, match="hf auth login"):
        send(dots)
    assert not hf.repos
    assert not hf.find("^(POST|PUT)")


BUSY, SLOW = say(503, {"error": "busy"}), say(429, {"error": "slow"})


@pytest.mark.parametrize(
    ("where", "fault"), [("repos/create", BUSY), ("preupload", SLOW), ("/commit/", cut), ("/tag/", BUSY)]
)
def test_one_fault_is_overcome(hf, dots, where, fault):
    hf.faults.append((where, fault))
    send(dots)
    assert not hf.faults
    assert len(hf.repos[REPO].commits) == 2
    assert list(hf.repos[REPO].tags) == ["v0.1.0"]


def test_a_commit_whose_answer_was_lost_is_not_made_twice(hf, dots):
    def lose(handler):
        body = hf.requests[-1][3]
        hf.commit(body, kind="dataset", repo="me/bright-dots")
        handler.close_connection = True

    hf.faults.append(("/commit/", lose))
    send(dots)
    assert len(hf.repos[REPO].commits) == 2


def test_a_hub_that_only_fails_is_reported_without_the_key_and_a_refusal_is_not_asked_again(hf, dots):
    hf.faults += [("repos/create", say(403, {"error": "no right to write"}))]
    with pytest.raises(ConfigError, match="403"):
        send(dots)
    assert len(hf.find("repos/create")) == 1
    hf.faults += [("/commit/", say(500, {"error": f"you sent {KEY}"}))] * 9
    with pytest.raises(ConfigError, match=r"--to hf: .*500.* run the command again") as caught:
        send(dots)
    assert KEY not in str(caught.value)
    assert not any(repo.tags for repo in hf.repos.values())


def test_other_content_than_was_sent_is_found(hf, dots):
    hf.change = lambda name, content: b"print(1)" if name.endswith("__init__.py") else content
    with pytest.raises(ConfigError, match=r"gives back something else .*other content.*delete it there"):
        send(dots)


def test_files_that_were_never_sent_are_found(hf, dots):
    def add(handler):
        found = hf.repos[REPO]
        found.commits[-1]["bright_dots/more.py"] = b"import os"
        say(200, hf.tag(hf.requests[-1][3], "dataset", "me/bright-dots", found.head))(handler)

    hf.faults.append(("/tag/", add))
    with pytest.raises(ConfigError, match=r"bright_dots/more\.py was never sent"):
        send(dots)


def test_a_redirect_to_another_host_takes_no_key_along(hf, dots):
    with serve_hub(HubServer()) as other:
        for where in ("repos/create", "/commit/", "preupload"):
            hf.faults.append((where, say(307, {}, Location=f"{other.url}/elsewhere")))
        with pytest.raises(ConfigError):
            send(dots)
    assert other.requests
    assert not any(KEY in json.dumps(headers) for _, _, headers, _ in other.requests)


@pytest.mark.usefixtures("linked", "unchecked")
def test_what_was_published_is_installed_from_the_hub_and_opens(hf):
    package, _ = send("digits", settings={"split": "test", "num_tasks": 3})
    assert package.findings[-1].endswith("verifiers finds it and opens its first task")
