"""A package that holds more than it should: what `viewbox publish` takes along, and what it refuses."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.attacks.doors.test_masked_keys import KEY_LIKE
from tests.support.publishing import leave_out_check, list_contents, write_dots
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.publish import contents, publish
from viewbox.publish.author_code import find_environment
from viewbox.publish.contents import CODE, check_file, list_author_files

SECRET = "s3cr3t-of-the-lab"


def put(folder, *names, text=SECRET):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder of a package `lab` with an environment; the trial in a process of its own is left out."""
    leave_out_check(monkeypatch)
    home = tmp_path / "home" / "lab"
    put(home, "__init__.py", text="")
    put(home, "dots.py", text=write_dots())
    put(tmp_path, "outside/notes.txt")
    put(tmp_path, "outside/code.py", text=f"# {SECRET}")
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
    put(home, "sub/more.py", "sub/words.json", "data.csv", ".hidden", "x.pyc", "py.typed", "big.npy", text="1")
    put(home, "notes.txt", ".git/config", ".venv/lib.py", "__pycache__/x")
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
    left_out = "leaves out notes.txt (not declared as data; --data takes it)"
    for more, lines in (
        (["--dry-run"], ["publishes dots.py\n", left_out, "nothing was written"]),
        (["--data", "*.txt"], ["publishes notes.txt\n"]),
    ):
        assert not out.exists()
        code, said, _ = viewbox("publish", "lab.dots:Dots", out, *more)
        assert (code, [line for line in lines if line not in said]) == (0, [])
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


@pytest.mark.parametrize(("project", "files", "taken"), [  # the data files that the build packs
    (f'{SETUPTOOLS}[tool.setuptools.package-data]\nlab = ["words/*.txt"]', {}, {"words/a.txt"}),
    (HATCHLING, {".gitignore": "deep/\n"}, {"a.txt", "words/a.txt"}),
    (HATCHLING + FORCED, {"extra.json": "1"}, {"a.txt", "words/a.txt", "words/deep/a.txt", "data/extra.json"}),
    (f'{SETUPTOOLS}[tool.setuptools.package-data]\nlab = ["*.txt"]', {"lab/NOTICE": "CC BY"}, {"a.txt", "NOTICE"}),
])  # fmt: skip
def test_the_data_files_are_those_that_the_authors_build_packs(home, tmp_path, project, files, taken):
    put(home, "a.txt", "words/a.txt", "words/deep/a.txt", ".env", text="1")
    for name, text in (files | {"pyproject.toml": project}).items():
        put(home.parent, name, text=text)
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


@pytest.mark.parametrize(("project", "name", "to"), [
    (HATCHLING, "LICENSE", "notes.txt"),
    (f'{SETUPTOOLS}license-files = ["*.txt"]', "terms.txt", "notes.txt"),
    (f'{HATCHLING}readme = "README.md"', "README.md", "notes.txt"),
    (f'{HATCHLING}[tool.hatch.build.targets.wheel]\npackages = ["lab"]\n{OUT}', "notes", "."),
])  # fmt: skip
def test_a_build_packs_nothing_that_a_link_out_of_its_project_leads_to(home, project, name, to):
    (home.parent / "pyproject.toml").write_text(project)
    (home.parent / name).symlink_to(home.parents[1] / "outside" / to)
    with suppress(ConfigError):  # where the build needs the file
        write(home)
    assert SECRET.encode() not in read_all(get_out(home))


def test_a_key_in_the_name_of_a_file_is_refused(home):
    (home / f"hf_{'aBcD' * 9}.json").write_text("1")
    refuse(home, "its name: holds what looks like a token of Hugging Face", data=("*.json",))


LINKS = [
    ("notes.txt", "outside/notes.txt"), ("helper.py", "outside/code.py"), ("data", "outside"), ("sub/data", "outside"),
    ("up", "home"), ("root", "/"), ("zero.py", "/dev/zero"), ("me", "~"), ("gone.txt", "outside/nothing"),
    ("rel.txt", "../../outside/notes.txt"),
]  # fmt: skip


def test_a_link_out_of_the_package_is_refused(home):
    for name, to in LINKS:
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
        put(home, hidden)
        (home / "innocent.txt").symlink_to(home / hidden)
        assert {path.name for path in list_author_files(home).taken} == {"__init__.py", "dots.py"}
        with pytest.raises(ConfigError, match=r"innocent\.txt: is not a regular file, or a link"):
            list_author_files(home, ["innocent.txt"])
        (home / "innocent.txt").unlink()


SECRET_NAMES = [
    "Credentials.JSON", "credentials", "google-credentials.json", "client_secrets.json", "secret.txt",
    "my_secrets.toml", "server.pem", "private.key", "cert.p12", "store.jks", "id_rsa.pub", "id_ed25519", "key.ppk",
    "vault.kdbx", "token", "tokens.json", "token_hf.txt", "hf_token.txt", "my.token", "api-key", "openai_apikey.json",
    "passwords.csv", "passwd", "service_account_prod.json", "lab-service-account.json", "kubeconfig", "prod.env",
    "terraform.tfstate", "prod.tfvars", "rclone.conf", "x.gpg", "vpn.ovpn", "_netrc", "AuthKey_1.p8",
]  # fmt: skip


def test_a_file_that_is_named_like_a_secret_is_not_published(home):
    for name in SECRET_NAMES:
        put(home, f"sub/{name}")
        assert Path("sub", name) in list_author_files(home).left_out
        with pytest.raises(ConfigError, match="named like a file that holds secrets"):
            list_author_files(home, ("**",))
        (home / "sub" / name).unlink()


def test_no_pattern_takes_a_hidden_file(home):
    for name in (".env", ".env.local", ".netrc", ".ssh/id_rsa", ".aws/credentials"):
        put(home, name)
        for pattern in ("**", "**/*", "**/.*", name):
            with suppress(ConfigError):
                assert {path.suffix for path in list_author_files(home, [pattern]).taken} == {".py"}


def test_a_file_that_only_sounds_like_one_is_published_and_a_module_of_that_name_is_read_instead(home):
    others = {"tokenizer.json", "tokenizer_config.json", "keys.csv", "monkey.txt"}
    modules = {"secrets.py", "token.py", "credentials.py", "passwords.py"}
    put(home, *others, *modules, text="x = 1\n")
    assert others | modules < {str(path) for path in list_author_files(home, ["*"]).taken}
    assert modules < {str(path) for path in list_author_files(home).taken}


KEYS = [
    *KEY_LIKE, "-----BEGIN PGP PRIVATE KEY BLOCK-----",
    '{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\\nMII"}',
]  # fmt: skip


def test_a_file_that_holds_a_key_is_refused_and_the_key_is_not_shown(home):
    put(home, "sub/other")
    for number, text in enumerate(KEYS):
        name, encoding = ("dots.py", "words.txt", "sub/deep.bin")[number % 3], ("utf-8", "utf-16")[number % 2]
        before = (home / name).read_bytes() if (home / name).exists() else b""
        (home / name).write_text(f"x = 1\n# a line\n# key: '{text}'\n", encoding=encoding)
        with pytest.raises(ConfigError, match="holds what looks like") as caught:
            list_author_files(home, [name] if name != "dots.py" else [])
        assert text not in str(caught.value)
        (home / name).write_bytes(before)


@each("encoding", ["utf-8", "latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
@each("before", [b"", b"\0", b"abc"])
def test_a_key_is_found_in_every_encoding_wherever_it_begins(tmp_path, encoding, before):
    (tmp_path / "words.bin").write_bytes(before + f" # {KEYS[0]}\n".encode(encoding))
    with pytest.raises(ConfigError, match="holds what looks like"):
        check_file(tmp_path / "words.bin")


def test_a_single_module_is_read_too(tmp_path, unchecked):
    (tmp_path / "single_dots.py").write_text(f"{write_dots()}\n# hf_{'aBcD' * 8}\n")
    with pytest.raises(ConfigError, match="a token of Hugging Face"):
        publish(f"{tmp_path}/single_dots.py:Dots", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_pattern_stays_in_the_package_a_secret_is_no_setting_and_a_pipe_is_not_read(home):
    for pattern in ("/etc/passwd", "../outside/*", "sub/../../outside/notes.txt", "/**", "no*such"):
        refuse(home, "--data", data=[pattern])
    for settings in ({"api_key": "hunter2"}, {"note": f"hf_{'aBcD' * 8}"}):
        refuse(home, "named like a secret", settings=settings)
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
    folder = tmp_path / "images"
    put(folder, "notes.txt", ".env")
    put(folder, "names.txt", text="read by a.py")
    put(folder, "a.py", text='NAMES = "names.txt"')
    (folder / "link.py").symlink_to("/etc/passwd")
    copied = [path.name for path in folder.iterdir() if contents._is_copied(path)]
    assert sorted(copied) == ["a.py", "names.txt"]
    monkeypatch.setattr(contents, "read_library", lambda: {"viewbox/a.py": b"hf_" + b"aBcD" * 8})
    with pytest.raises(ConfigError, match=r"viewbox/a\.py, line 1: holds what looks like a token of Hugging Face"):
        contents.pack_library.__wrapped__()
