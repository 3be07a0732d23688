"""A package that holds more than it should: what `viewbox publish` takes along, and what it refuses."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.attacks.doors.test_masked_keys import KEY_LIKE
from tests.support.publishing import leave_out_check, list_contents, write_dots
from viewbox.errors import ConfigError
from viewbox.publish import contents, publish
from viewbox.publish.author_code import find_environment
from viewbox.publish.contents import CODE, check_file, list_author_files

SECRET = "s3cr3t-of-the-lab"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder of a package `lab` with an environment; the trial in a process of its own is left out."""
    leave_out_check(monkeypatch)
    home = tmp_path / "home" / "lab"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("")
    (home / "dots.py").write_text(write_dots())
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "notes.txt").write_text(SECRET)
    (outside / "code.py").write_text(f"# {SECRET}")
    monkeypatch.syspath_prepend(home.parent)
    yield home
    for name in [name for name in sys.modules if name.partition(".")[0] == "lab"]:
        del sys.modules[name]


def get_out(home):
    return home.parents[1] / "out"


def write(home, **more):
    return publish("lab.dots:Dots", get_out(home), **more)


def read_all(folder):
    files = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return b"".join(content for _, content in list_contents(files))


def refuse(home, words, **more):
    with pytest.raises(ConfigError, match=words) as caught:
        write(home, **more)
    assert SECRET not in str(caught.value)
    assert not (get_out(home)).exists()


def test_only_python_files_and_declared_data_are_published(home):
    (home / "sub").mkdir()
    for name in ("sub/more.py", "sub/words.json", "notes.txt", "data.csv", ".hidden", "x.pyc", "py.typed", "big.npy"):
        (home / name).write_text(SECRET if name == "notes.txt" else "1")
    for name in (".git/config", ".venv/lib.py", "__pycache__/x"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(SECRET)
    seen = []
    write(home, data=["sub/*.json"], on_files=lambda *files: seen.append([[*map(str, part)] for part in files]))
    out = get_out(home)
    copied = {path.relative_to(path.parents[1]).as_posix() for path in out.rglob("*") if "lab" in path.parts[-2:-1]}
    assert copied == {"lab/__init__.py", "lab/dots.py", "lab/py.typed", "lab/sub"}
    assert (out / "viewbox_dots" / "_vendor" / "lab" / "sub" / "words.json").is_file()
    assert SECRET.encode() not in read_all(out)
    taken = ["__init__.py", "dots.py", "py.typed", "sub/more.py", "sub/words.json"]
    assert seen == [[taken, ["big.npy", "data.csv", "notes.txt"]]]


def test_the_command_lists_the_files_and_a_dry_run_writes_none(home, viewbox):
    (home / "notes.txt").write_text("1")
    out = get_out(home)
    code, said, _ = viewbox("publish", "lab.dots:Dots", out, "--dry-run")
    assert code == 0
    assert "publishes dots.py\n" in said
    assert "leaves out notes.txt (not declared as data; --data takes it)" in said
    assert "nothing was written" in said
    assert not out.exists()
    code, said, _ = viewbox("publish", "lab.dots:Dots", out, "--data", "*.txt")
    assert code == 0
    assert "publishes notes.txt\n" in said
    assert (out / "viewbox_dots" / "_vendor" / "lab" / "notes.txt").is_file()


SETUPTOOLS = """
[tool.setuptools]
packages = ["lab"]
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "lab"
version = "1"
"""
HATCHLING = SETUPTOOLS.replace("setuptools>=77", "hatchling>=1.27").replace("setuptools.build_meta", "hatchling.build")
FORCED = '[tool.hatch.build.targets.wheel.force-include]\n"extra.json" = "lab/data/extra.json"'
# name: (pyproject.toml, other files beside it, the data files that the build packs)
BUILDS = {
    "a pattern": (f'{SETUPTOOLS}[tool.setuptools.package-data]\nlab = ["words/*.txt"]', {}, {"words/a.txt"}),
    "of every package": (f'{SETUPTOOLS}[tool.setuptools.package-data]\n"*" = ["*.txt"]', {}, {"a.txt"}),
    "but what git ignores": (HATCHLING, {".gitignore": "deep/\n"}, {"a.txt", "words/a.txt"}),
    "and what is excluded": (f'{HATCHLING}[tool.hatch.build]\nexclude = ["lab/words"]', {}, {"a.txt"}),
    "from outside": (f"{HATCHLING}{FORCED}", {"extra.json": "1"},
        {"a.txt", "words/a.txt", "words/deep/a.txt", "data/extra.json"}),
    "a license beside data": (f'{SETUPTOOLS}[tool.setuptools.package-data]\nlab = ["*.txt"]',
        {"lab/NOTICE": "CC BY"}, {"a.txt", "NOTICE"}),
}  # fmt: skip


@pytest.mark.parametrize("build", BUILDS)
def test_the_data_files_are_those_that_the_authors_build_packs(home, tmp_path, build):
    project, files, taken = BUILDS[build]
    files = files | dict.fromkeys(("lab/a.txt", "lab/words/a.txt", "lab/words/deep/a.txt", "lab/.env"), "1")
    for name, text in (files | {"pyproject.toml": project}).items():
        (home.parent / name).parent.mkdir(parents=True, exist_ok=True)
        (home.parent / name).write_text(text)
    before = {path for path in home.parent.rglob("*") if "__pycache__" not in path.parts}
    (tmp_path / "build").mkdir()
    source = find_environment("lab.dots:Dots", {}, (), tmp_path / "build")
    assert {path.as_posix() for path in source.chosen.taken if path.suffix not in CODE} == taken
    assert all((source.package / path).read_bytes() is not None for path in source.chosen.taken)
    assert {path for path in home.parent.rglob("*") if "__pycache__" not in path.parts} == before


def test_a_build_that_fails_is_said_and_nothing_is_guessed(home):
    (home.parent / "pyproject.toml").write_text(HATCHLING.replace("hatchling", "no_such_backend"))
    refuse(home, "which files it packs is not known: the build by no_such_backend")


@pytest.mark.parametrize("packed", ["lab/words/.env", "lab/notes.txt"])
def test_what_a_build_packs_is_checked_as_all_else(home, packed):
    """A build may bring files from anywhere: hidden ones stay here, and secrets are refused."""
    key = f"hf_{'aBcD' * 8}"
    (home.parent / "elsewhere").write_text(key)
    table = f'[tool.hatch.build.targets.wheel.force-include]\n"elsewhere" = "{packed}"\n'
    (home.parent / "pyproject.toml").write_text(HATCHLING + table)
    if ".env" not in packed:
        refuse(home, "named like a file that holds secrets|a token of Hugging Face")
    else:
        write(home)
        assert not list((get_out(home)).rglob(".env"))
        assert key.encode() not in read_all(get_out(home))


OUT = '[tool.hatch.build.targets.wheel.force-include]\n"notes" = "lab/notes"\n'
LINKED = {
    "a license": (HATCHLING, "LICENSE", "notes.txt"),
    "a license of setuptools": (f'{SETUPTOOLS}license-files = ["*.txt"]', "terms.txt", "notes.txt"),
    "the README": (f'{HATCHLING}readme = "README.md"', "README.md", "notes.txt"),
    "a folder from outside": (f'{HATCHLING}[tool.hatch.build.targets.wheel]\npackages = ["lab"]\n{OUT}', "notes", "."),
}


@pytest.mark.parametrize("linked", LINKED)
def test_a_build_packs_nothing_that_a_link_out_of_its_project_leads_to(home, linked):
    project, name, to = LINKED[linked]
    (home.parent / "pyproject.toml").write_text(project)
    (home.parent / name).symlink_to(home.parents[1] / "outside" / to)
    with suppress(ConfigError):  # where the build needs the file
        write(home)
    assert SECRET.encode() not in read_all(get_out(home))


def test_nothing_hidden_leaves_beside_in_or_under_a_package(home):
    for folder in (home.parent, home, home / "words"):
        (folder / ".ssh").mkdir(parents=True)
        for name in (".env", ".hidden", ".ssh/id_rsa"):
            (folder / name).write_text(SECRET)
    (home / "words" / "a.txt").write_text("a")
    (home.parent / "pyproject.toml").write_text(HATCHLING)
    write(home, data=("**",))
    assert SECRET.encode() not in read_all(get_out(home))
    assert (get_out(home) / "viewbox_dots" / "_vendor" / "lab" / "words" / "a.txt").is_file()


def test_a_key_in_the_name_of_a_file_is_refused(home):
    (home / f"hf_{'aBcD' * 9}.json").write_text("1")
    refuse(home, "its name: holds what looks like a token of Hugging Face", data=("*.json",))


LINKS = {
    "a file": ("notes.txt", "outside/notes.txt"), "a Python file": ("helper.py", "outside/code.py"),
    "a folder": ("data", "outside"), "in a folder": ("sub/data", "outside"), "the folder above": ("up", "home"),
    "the root": ("root", "/"), "a device": ("zero.py", "/dev/zero"), "the home of the user": ("me", "~"),
    "nothing": ("gone.txt", "outside/nothing"), "relative": ("rel.txt", "../../outside/notes.txt"),
}  # fmt: skip


def test_a_link_out_of_the_package_is_refused(home):
    for name, to in LINKS.values():
        (home / name).parent.mkdir(exist_ok=True)
        target = os.path.expanduser(to) if to.startswith(("/", "~", "..")) else home.parents[1] / to
        (home / name).symlink_to(target)
        for data in ((), ("**",)):
            with pytest.raises(ConfigError, match="is a link out of the package") as caught:
                list_author_files(home, data)
            assert SECRET not in str(caught.value)
        (home / name).unlink()


def test_a_link_inside_the_package_takes_no_hidden_file_along(home):
    for hidden in (".env", ".git/config", "credentials.json"):
        (home / hidden).parent.mkdir(exist_ok=True)
        (home / hidden).write_text(SECRET)
        (home / "innocent.txt").symlink_to(home / hidden)
        assert {path.name for path in list_author_files(home).taken} == {"__init__.py", "dots.py"}
        with pytest.raises(ConfigError, match=r"innocent\.txt: is not a regular file, or a link"):
            list_author_files(home, ["innocent.txt"])
        (home / "innocent.txt").unlink()


SECRET_NAMES = [
    "credentials.json", "Credentials.JSON", "credentials", "aws_credentials.csv", "google-credentials.json",
    "client_secret.json", "client_secrets.json", "secret.txt", "secrets.yaml", "my_secrets.toml", "server.pem",
    "private.key", "cert.p12", "store.jks", "id_rsa", "id_rsa.pub", "id_ed25519", "key.ppk", "vault.kdbx", "token",
    "token.txt", "tokens.json", "token_hf.txt", "hf_token", "hf_token.txt", "my.token", "api_key.txt", "api-key",
    "openai_apikey.json", "password.txt", "passwords.csv", "passwd", "service-account.json",
    "service_account_prod.json", "lab-service-account.json", "kubeconfig", "prod.env", "terraform.tfstate",
    "prod.tfvars", "rclone.conf", "x.gpg", "vpn.ovpn", "_netrc", "AuthKey_1.p8",
]  # fmt: skip


def test_a_file_that_is_named_like_a_secret_is_not_published(home):
    (home / "sub").mkdir()
    for name in SECRET_NAMES:
        (home / "sub" / name).write_text(SECRET)
        assert Path("sub", name) in list_author_files(home).left_out
        with pytest.raises(ConfigError, match="named like a file that holds secrets"):
            list_author_files(home, ("**",))
        (home / "sub" / name).unlink()


def test_no_pattern_takes_a_hidden_file(home):
    for name in (".env", ".env.local", ".netrc", ".ssh/id_rsa", ".aws/credentials"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(SECRET)
        for pattern in ("**", "**/*", "**/.*", name):
            with suppress(ConfigError):
                assert {path.suffix for path in list_author_files(home, [pattern]).taken} == {".py"}


def test_a_file_that_only_sounds_like_one_is_published_and_a_module_of_that_name_is_read_instead(home):
    others = {"tokenizer.json", "tokenizer_config.json", "keys.csv", "monkey.txt"}
    modules = {"secrets.py", "token.py", "credentials.py", "passwords.py"}
    for name in others | modules:
        (home / name).write_text("x = 1\n")
    assert others | modules < {str(path) for path in list_author_files(home, ["*"]).taken}
    assert modules < {str(path) for path in list_author_files(home).taken}


KEYS = [
    *KEY_LIKE, "-----BEGIN PGP PRIVATE KEY BLOCK-----",
    '{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\\nMII"}',
]  # fmt: skip


def test_a_file_that_holds_a_key_is_refused_and_the_key_is_not_shown(home):
    (home / "sub").mkdir()
    for number, text in enumerate(KEYS):
        name, encoding = ("dots.py", "words.txt", "sub/deep.bin")[number % 3], ("utf-8", "utf-16")[number % 2]
        before = (home / name).read_bytes() if (home / name).exists() else b""
        (home / name).write_text(f"x = 1\n# a line\n# key: '{text}'\n", encoding=encoding)
        with pytest.raises(ConfigError, match="holds what looks like") as caught:
            list_author_files(home, [name] if name != "dots.py" else [])
        assert text not in str(caught.value)
        (home / name).write_bytes(before)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
@pytest.mark.parametrize("before", [b"", b"\0", b"abc"])
def test_a_key_is_found_in_every_encoding_wherever_it_begins(tmp_path, encoding, before):
    (tmp_path / "words.bin").write_bytes(before + f" # {KEYS[0]}\n".encode(encoding))
    with pytest.raises(ConfigError, match="holds what looks like"):
        check_file(tmp_path / "words.bin")


def test_a_single_module_is_read_too(tmp_path, monkeypatch):
    leave_out_check(monkeypatch)
    (tmp_path / "single_dots.py").write_text(f"{write_dots()}\n# hf_{'aBcD' * 8}\n")
    with pytest.raises(ConfigError, match="a token of Hugging Face"):
        publish(f"{tmp_path}/single_dots.py:Dots", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_pattern_stays_in_the_package_and_a_secret_is_no_setting(home):
    for pattern in ("/etc/passwd", "../outside/*", "sub/../../outside/notes.txt", "/**", "no*such"):
        refuse(home, "--data", data=[pattern])
    for settings in ({"api_key": "hunter2"}, {"note": f"hf_{'aBcD' * 8}"}):
        refuse(home, "named like a secret", settings=settings)


def test_a_file_that_never_ends_is_not_read(home):
    os.mkfifo(home / "pipe.txt")
    refuse(home, "not a regular file", data=["*.txt"])


@pytest.mark.parametrize("name", ["README.md", "viewbox_dots/_vendor/lab/dots.py"])
def test_no_link_in_the_target_is_written_through(home, name):
    out = get_out(home)
    (out / name).parent.mkdir(parents=True)
    if name == "README.md":
        write(home)
    victim = home.parents[1] / "victim"
    (out / name).unlink(missing_ok=True)
    (out / name).symlink_to(victim)
    with suppress(ConfigError):
        write(home, force=True)
    assert not victim.exists()


def test_of_viewbox_itself_only_its_own_files_travel_and_no_key(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.py").write_text('NAMES = "names.txt"')
    (tmp_path / "images" / "names.txt").write_text("read by a.py")
    (tmp_path / "images" / "notes.txt").write_text(SECRET)
    (tmp_path / "images" / ".env").write_text(SECRET)
    (tmp_path / "images" / "link.py").symlink_to("/etc/passwd")
    copied = [path.name for path in (tmp_path / "images").iterdir() if contents._is_copied(path)]
    assert sorted(copied) == ["a.py", "names.txt"]
    monkeypatch.setattr(contents, "read_library", lambda: {"viewbox/a.py": b"hf_" + b"aBcD" * 8})
    with pytest.raises(ConfigError, match=r"viewbox/a\.py, line 1: holds what looks like a token of Hugging Face"):
        contents.pack_library.__wrapped__()
