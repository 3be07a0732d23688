"""As much of the Environments Hub of Prime Intellect as its command needs to push, pull and install an environment."""

import hashlib
import io
import json
import tarfile

from tests.support.hub_server import HubServer, route, say

API = "/api/v1/environmentshub"
STORES = {"wheels": ("wheels", "wheel_id"), "versions": ("sources", "version_id")}  # and the name of an id in it


class PrimeHub(HubServer):
    """`environments` by "owner/name": visibility, versions, wheels, sources; `change` alters what comes back."""

    def __init__(self):
        super().__init__()
        self.environments, self.ids, self.change = {}, {}, lambda kind, content: content

    @route("POST", API + "/resolve")
    def resolve(self, body):
        asked = json.loads(body)
        name = f"{asked['owner_slug']}/{asked['name']}"
        created = name not in self.environments
        if created:
            self.ids[f"env{len(self.ids)}"] = name
            self.environments[name] = {"visibility": asked["visibility"], "versions": {}, "wheels": {}, "sources": {}}
        number = next(number for number, one in self.ids.items() if one == name)
        return {"data": {"id": number, "created": created, "owner": {"name": asked["owner_slug"]}}}

    @route("POST", API + r"/(?P<env>env\d+)/(?P<kind>wheels|versions)")
    def begin(self, body, env, kind):
        asked, (store, key) = json.loads(body), STORES[kind]
        self.environments[self.ids[env]][store][asked["sha256"]] = {**asked, "content": None, "done": False}
        return {"data": {key: asked["sha256"], "upload_url": f"{self.url}/store/{env}/{store}/{asked['sha256']}"}}

    @route("PUT", "/store/(?P<env>[^/]+)/(?P<kind>[^/]+)/(?P<sha>[0-9a-f]+)")
    def store(self, body, env, kind, sha):
        if hashlib.sha256(body).hexdigest() != sha:
            return say(400, {"detail": "wrong hash"})
        self.environments[self.ids[env]][kind][sha]["content"] = body
        return {}

    @route("POST", API + r"/(?P<env>env\d+)/(?P<kind>wheels|versions)/(?P<sha>[0-9a-f]+)/finalize")
    def finalize(self, body, env, kind, sha):
        found = self.environments[self.ids[env]]
        one = found[STORES[kind][0]][sha]
        if one["content"] is None:
            return say(409, {"detail": "nothing was uploaded"})
        one["done"] = True
        if kind == "versions":
            found["versions"][one["semantic_version"]] = sha
        return {"data": {"success": True}}

    @route("GET", API + "/(?P<owner>[^/]+)/(?P<name>[^/]+)/status")
    def status(self, body, owner, name):
        if (found := self.environments.get(f"{owner}/{name}")) is None:
            return say(404, {"detail": "Not found"})
        return {"data": {"name": name, "visibility": found["visibility"], "latest_version": None}}

    @route("GET", API + "/(?P<owner>[^/]+)/(?P<name>[^/]+)/versions")
    def list_versions(self, body, owner, name):
        found = self.environments[f"{owner}/{name}"]["versions"]
        listed = [{"version": one, "created_at": "2026-01-02T03:04:05", "sha256": sha} for one, sha in found.items()]
        return {"data": listed}

    @route("GET", API + "/(?P<owner>[^/]+)/(?P<name>[^/]+)/@(?P<version>[^/]+)")
    def details(self, body, owner, name, version):
        found = self.environments[f"{owner}/{name}"]
        sha = found["versions"].get(version)
        if sha is None:
            return say(404, {"detail": "Not found"})
        env = next(number for number, one in self.ids.items() if one == f"{owner}/{name}")
        public = found["visibility"] == "PUBLIC"  # others are built where they are installed
        wheel = next(one for one in found["wheels"].values() if one["semantic_version"] == version)
        return {"data": {
            "id": env, "visibility": found["visibility"], "semantic_version": version,
            "package_url": f"{self.url}/source/{env}/{sha}",
            "wheel_url": f"{self.url}/wheel/{env}/{wheel['sha256']}/{wheel['filename']}" if public else None,
        }}  # fmt: skip

    @route("GET", "/source/(?P<env>[^/]+)/(?P<sha>[0-9a-f]+)")
    def source(self, body, env, sha):
        return self.change("source", self.environments[self.ids[env]]["sources"][sha]["content"])

    @route("GET", "/wheel/(?P<env>[^/]+)/(?P<sha>[0-9a-f]+)/[^/]+")
    def wheel(self, body, env, sha):
        return self.change("wheel", self.environments[self.ids[env]]["wheels"][sha]["content"])


def read_archive(content):
    """The files of a source archive, by path."""
    with tarfile.open(fileobj=io.BytesIO(content)) as file:
        return {one.name: file.extractfile(one).read() for one in file.getmembers()}


def write_archive(files):
    """A source archive of (path, content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as file:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return out.getvalue()
