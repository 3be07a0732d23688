"""What is fetched, from real servers with TLS that stand for hosts of the internet."""

import asyncio
import socket

import pytest

from tests.attacks.fetching.makers import GOOD, encode
from tests.support.servers import send_bytes
from tests.support.tls_server import make_network, serve_tls
from viewbox.images.files import open_image
from viewbox.network.background import run
from viewbox.network.fetching import TEXTS, fetch_url

HOST, OTHER = "openi.nlm.nih.gov", "www.ncbi.nlm.nih.gov"
URL = f"https://{HOST}/imgs/512/1/a.png"


def fetch(network, url=URL, **settings):
    return asyncio.run(fetch_url(url, _network=network, **{"allowed_hosts": [HOST, OTHER], "timeout": 10, **settings}))


@pytest.fixture
def serve_host(tmp_path):
    """A function that starts a server for `HOST` which sends these responses, the last one for ever."""
    started = []

    def start(*answers, name=HOST):
        block = serve_tls(tmp_path, lambda body, number: answers[min(number, len(answers) - 1)], name)
        started.append(block)
        return block.__enter__()

    yield start
    for block in started:
        block.__exit__(None, None, None)


@pytest.mark.parametrize("name", GOOD)
def test_pictures_are_fetched_and_can_be_opened(serve_host, name):
    server = serve_host(send_bytes(200, GOOD[name], Content_Type="application/octet-stream"))
    found = fetch(make_network({HOST: server}))
    assert found.content == GOOD[name]
    assert found.content_type == ("image/jpeg" if "JPEG" in name else "image/png")
    assert min(open_image(found.content).size) >= 10


TEXT = {
    "JSON": (b'{"list": [], "total": 0}', "application/json"),
    "a list": (b'\xef\xbb\xbf [{"pmid": "1"}]', "application/json"),
    "JSON with a page in it": (b'{"abstract": "<html> and <svg>"}', "application/json"),
    "XML": ('<?xml version="1.0"?>\n<!DOCTYPE eSearchResult>\n<a>ü</a>'.encode(), "application/xml"),
    "XML without a head": (b"<PubmedArticleSet></PubmedArticleSet>", "application/xml"),
}


@pytest.mark.parametrize("name", TEXT)
def test_answers_of_services_are_fetched_as_what_they_are(serve_host, name):
    content, kind = TEXT[name]
    found = fetch(make_network({HOST: serve_host(send_bytes(200, content))}), types=TEXTS)
    assert (found.content, found.content_type) == (content, kind)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        (f"https://{HOST}", "/"),
        (f"https://{HOST}:443/a", "/a"),
        ("HTTPS://OpenI.NLM.nih.gov/A", "/A"),
        (f"https://{HOST}/imgs/a%20b.png?q=%C3%BC&x=1+2", "/imgs/a%20b.png?q=%C3%BC&x=1+2"),
        (f"https://{HOST}/a//b/../c;d=(e)[f]'!*$,~", "/a//b/../c;d=(e)[f]'!*$,~"),
    ],
)
def test_the_server_is_asked_for_what_the_url_says(serve_host, url, path):
    server = serve_host(send_bytes(200, encode()))
    fetch(make_network({HOST: server}), url)
    assert [one["path"] for one in server.requests] == [path]
    assert server.requests[0]["headers"]["Host"] == HOST
    assert server.names == [HOST]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "location", ["b.png", "/imgs/512/1/b.png", f"//{HOST}/imgs/512/1/b.png", URL.replace("a.", "b.")]
)
def test_redirects_to_the_same_host_are_followed(serve_host, status, location):
    server = serve_host(send_bytes(status, b"", Location=location), send_bytes(200, encode()))
    assert fetch(make_network({HOST: server})).url == URL.replace("a.png", "b.png")


def test_three_redirects_across_allowed_hosts_are_followed(serve_host):
    there, back = (send_bytes(302, b"", Location=f"https://{host}/") for host in (OTHER, HOST))
    server, other = serve_host(there, there), serve_host(back, send_bytes(200, encode()), name=OTHER)
    assert fetch(make_network({HOST: server, OTHER: other})).url == f"https://{OTHER}/"
    assert (len(server.requests), len(other.requests)) == (2, 2)


def test_a_content_without_a_length_is_fetched(serve_host):
    def send(handler):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for byte in encode():
            handler.wfile.write(b"1\r\n%c\r\n" % byte)
        handler.wfile.write(b"0\r\n\r\n")

    assert fetch(make_network({HOST: serve_host(send)})).content == encode()


@pytest.mark.parametrize("address", ["8.8.8.8", "2607:f220:41e:4290::110"])
def test_addresses_of_both_versions_are_pinned(serve_host, address):
    server = serve_host(send_bytes(200, encode()))

    async def look_up(host):
        return [address]

    network = make_network({HOST: server}, look_up)
    assert fetch(type(network)(look_up, {address: server.server_port}, network.certificates)).content == encode()


def test_the_next_address_of_a_name_is_tried_if_the_first_does_not_answer(serve_host):
    server = serve_host(send_bytes(200, encode()))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # it does not listen

        async def look_up(host):
            return ["130.14.29.9", "130.14.29.1"]

        network = make_network({HOST: server}, look_up)
        ports = {**network.stand_ins, "130.14.29.9": closed.getsockname()[1]}
        assert fetch(type(network)(look_up, ports, network.certificates)).content == encode()


def test_many_are_fetched_at_once_from_synchronous_code(serve_host):
    server = serve_host(send_bytes(200, encode()))
    network = make_network({HOST: server})

    async def fetch_all():
        return await asyncio.gather(*(fetch_url(URL, allowed_hosts=[HOST], _network=network) for _ in range(20)))

    assert {one.content for one in run(fetch_all())} == {encode()}
    assert len(server.requests) == 20
