"""A server on 127.0.0.1 that speaks GitHub's REST API, with answers of their real shape.

Shapes: "Get a repository" (https://docs.github.com/rest/repos/repos#get-a-repository), "Get the latest release"
(https://docs.github.com/rest/releases/releases#get-the-latest-release), redirects and errors as in "Troubleshooting the
REST API" and "Rate limits for the REST API" of the same site. The repositories are invented.
"""

import json
import threading
import time
from contextlib import contextmanager

from tests.support.literature_server import Local, Setup
from tests.support.servers import make_response
from tests.support.tls_server import StandIn, serve_tls
from viewbox.envs.software_adviser.github import GitHubAnswers
from viewbox.envs.software_adviser.repositories import API_HOST

NOT_FOUND = make_response(404, {"message": "Not Found", "documentation_url": "https://docs.github.com/rest"})
USED_UP = {"message": "API rate limit exceeded for 203.0.113.7. (But here's the good news: Authenticated requests get "
           "a higher rate limit.)", "documentation_url": "https://docs.github.com/rest"}  # fmt: skip


def make_about(name="owner/cutter", **values):
    return {
        "id": 1296269,
        "full_name": name,
        "private": False,
        "owner": {"login": name.partition("/")[0], "id": 1, "type": "User", "site_admin": False},
        "description": "Cuts organs out.",
        "language": "C++",
        "stargazers_count": 1234,
        "topics": ["medical-imaging", "ct"],
        "archived": False,
        "pushed_at": "2026-10-01T19:06:43Z",
        "license": {"key": "mit", "name": "MIT License", "spdx_id": "MIT", "url": None, "node_id": "MDc6"},
    } | values


def make_release(tag="v2.1.0", **values):
    return {"id": 1, "tag_name": tag, "name": tag, "draft": False, "prerelease": False, "body": "News.",
            "created_at": "2026-08-01T10:00:00Z", "published_at": "2026-08-02T10:00:00Z"} | values  # fmt: skip


def refuse_until(seconds, status=403, **headers):
    """The refusal of one whose requests are used up for some seconds."""
    reset = {"X_RateLimit_Limit": 60, "X_RateLimit_Remaining": 0, "X_RateLimit_Reset": int(time.time() + seconds)}
    return make_response(status, USED_UP, **(headers or reset))


class GitHubServer:
    """`answers` has what is sent by path: an object, or a function of the handler; the rest is not found."""

    def __init__(self):
        self.answers, self.arrivals, self.lock = {}, [], threading.Lock()  # (path, headers)

    def add(self, name, about=None, release=None):
        self.answers[f"/repos/{name}"] = about if callable(about) else make_about(name, **(about or {}))
        if release is not None:
            self.answers[f"/repos/{name}/releases/latest"] = release

    def answer(self, handler):
        with self.lock:
            self.arrivals.append((handler.path, {key.lower(): value for key, value in handler.headers.items()}))
        found = self.answers.get(handler.path, NOT_FOUND)
        (found if callable(found) else make_response(200, json.loads(json.dumps(found))))(handler)

    @property
    def paths(self):
        return [path for path, _ in self.arrivals]


class LocalGitHub(Local, GitHubAnswers):
    """`GitHubAnswers` whose client is made under a setup."""


@contextmanager
def serve_github(folder):
    """Runs a server; gives it with the settings under which `LocalGitHub` reaches it."""
    github = GitHubServer()
    with serve_tls(folder, lambda body, number: github.answer, API_HOST) as server:
        github.server = server
        yield github, Setup(lambda host: StandIn(host, {API_HOST: server}), 10_000, first_pause=0.02, retry_timeout=3.0)
