"""As much of the Hugging Face hub as creating, committing, tagging and downloading a repository needs."""

import base64
import hashlib
import json

import pytest

from tests.support.hub_server import HubServer, route, say, serve_hub

KEY = "hf_" + "Secret0" * 5
REPO = r"/api/(?P<kind>dataset|model)s/(?P<repo>[^/]+/[^/]+)"


class Repo:
    """The files of each commit, the newest last, and tags by name."""

    def __init__(self, private):
        self.private, self.commits, self.tags = private, [{}], {}

    @property
    def head(self):
        return f"{len(self.commits) - 1:040x}"

    def resolve(self, revision):
        name = self.tags.get(revision, self.head if revision == "main" else revision)
        return name, self.commits[int(name, 16)]


class HfHub(HubServer):
    """`repos` by (kind, name); `large` are endings that are uploaded by LFS; `change` alters what is given back."""

    large = (".png", ".safetensors", ".dcm", ".sqlite")

    def __init__(self):
        super().__init__()
        self.repos, self.blobs, self.change = {}, {}, lambda name, content: content

    def get(self, kind, repo):
        return self.repos.get((kind, repo))

    @route("POST", "/api/repos/create")
    def create(self, body):
        asked = json.loads(body)
        key = (asked.get("type", "model"), f"{asked['organization']}/{asked['name']}")
        private = asked.get("private", asked.get("visibility") == "private")
        if key in self.repos:
            return say(409, {"error": "You already created this repo", "url": f"{self.url}/{key[1]}"})
        self.repos[key] = Repo(private)
        folder = "datasets/" if key[0] == "dataset" else ""
        return {"url": f"{self.url}/{folder}{key[1]}", "name": key[1], "id": "1"}

    def missing(self):
        return say(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")

    @route("GET", REPO + "/refs")
    def refs(self, body, kind, repo):
        if (found := self.get(kind, repo)) is None:
            return self.missing()
        tags = [{"name": name, "ref": f"refs/tags/{name}", "targetCommit": at} for name, at in found.tags.items()]
        main = [{"name": "main", "ref": "refs/heads/main", "targetCommit": found.head}]
        return {"branches": main, "converts": [], "tags": tags}

    @route("GET", REPO + "(?:/revision/(?P<revision>[^/?]+))?")
    def info(self, body, kind, repo, revision):
        if (found := self.get(kind, repo)) is None:
            return self.missing()
        sha, files = found.resolve(revision or "main")
        siblings = [{"rfilename": name} for name in sorted(files)]
        return {"id": repo, "sha": sha, "private": found.private, "siblings": siblings, "tags": [], "downloads": 0}

    @route("GET", REPO + "/tree/(?P<revision>[^/?]+)")
    def tree(self, body, kind, repo, revision):
        _, files = self.get(kind, repo).resolve(revision)
        return [
            {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for name, content in files.items()
        ]

    @route("POST", "/api/validate-yaml")
    def validate(self, body):
        return {"errors": [], "warnings": []}

    @route("POST", REPO + "/preupload/main")
    def preupload(self, body, kind, repo):
        files = [one["path"] for one in json.loads(body)["files"]]
        modes = {name: "lfs" if name.endswith(self.large) else "regular" for name in files}
        return {"files": [{"path": name, "uploadMode": mode, "shouldIgnore": False} for name, mode in modes.items()]}

    @route("POST", r"/(?:datasets/)?[^/]+/[^/]+\.git/info/lfs/objects/batch")
    def batch(self, body):
        objects = []
        for one in json.loads(body)["objects"]:
            upload = {"upload": {"href": f"{self.url}/lfs/{one['oid']}"}}
            objects.append({**one, "actions": {} if one["oid"] in self.blobs else upload})
        return {"transfer": "basic", "objects": objects}

    @route("PUT", "/lfs/(?P<oid>[0-9a-f]{64})")
    def put(self, body, oid):
        if hashlib.sha256(body).hexdigest() != oid:
            return say(400, {"error": "wrong hash"})
        self.blobs[oid] = body
        return {}

    @route("POST", REPO + "/commit/main")
    def commit(self, body, kind, repo):
        found, lines = self.get(kind, repo), [json.loads(line) for line in body.splitlines()]
        parent = next(line["value"] for line in lines if line["key"] == "header").get("parentCommit")
        if parent not in (None, found.head):
            return say(412, {"error": "A commit has happened since"})
        files = dict(found.commits[-1])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.blobs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        found.commits.append(files)
        return {"commitUrl": f"{self.url}/{repo}/commit/{found.head}", "commitOid": found.head, "errors": []}

    @route("POST", REPO + "/tag/(?P<revision>[^/?]+)")
    def tag(self, body, kind, repo, revision):
        found, name = self.get(kind, repo), json.loads(body)["tag"]
        if name in found.tags:
            return say(409, {"error": f"Tag {name} exists"})
        found.tags[name] = revision
        return {}

    @route("GET", r"/(?P<kind>datasets/)?(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>[^?]+)")
    def resolve(self, body, kind, repo, revision, name):
        sha, files = self.get("dataset" if kind else "model", repo).resolve(revision)
        if name not in files:
            return say(404, {"error": "no file"}, X_Error_Code="EntryNotFound", X_Repo_Commit=sha)
        content = self.change(name, files[name])
        return say(200, content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=sha)


@pytest.fixture
def hf(monkeypatch, tmp_path):
    """The client reads its address when it is imported; where it is kept is told to each call."""
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import constants

    with serve_hub(HfHub()) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        pattern = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", pattern)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("viewbox.publish.hubs.hf.WAIT", 0.01)
        monkeypatch.setenv("HF_TOKEN", KEY)
        yield hub
