"""What is fetched from a public host, and which URLs, names and servers are refused: real servers, with TLS."""

import asyncio
import gzip
import time

import httpx
import pytest

from tests.support.servers import cut_body, drip_body, flood_body, hang_up, send_bytes, send_hints, send_raw, serve
from tests.support.tables import each
from tests.support.tls_server import Authority, StandIn, serve_tls
from viewbox.errors import ConfigError
from viewbox.network.connection import Connection
from viewbox.network.data_policy import guard_sending
from viewbox.network.errors import RequestError
from viewbox.network.public import PublicTransport, check_public_url, is_public

HOST, OTHER = "openi.nlm.nih.gov", "www.ncbi.nlm.nih.gov"
URL = f"https://{HOST}/imgs/a.png"
PUBLIC = "130.14.29.1"

# ---------------------------------------------------------------------- URLs
NOT_ALLOWED = "its host is not an allowed one"
NO_URL = "it is not scheme://host[:port][/path][?query] in ASCII"
REFUSED = {
    # this machine and its network, in some of their spellings
    "https://0x7f.1/": NOT_ALLOWED, "https://169.254.169.254/latest/meta-data": NOT_ALLOWED,
    "https://[::ffff:127.0.0.1]/": NOT_ALLOWED, "https://[fe80::1%25eth0]/": NO_URL,
    "https://[1:2:3:4:5:6:7:8:9]/": "not an IPv6 address",
    # the host looks like the allowed one
    f"https://{HOST}.evil.example/": NOT_ALLOWED, f"https://x.{HOST}/": NOT_ALLOWED,
    f"https://{HOST}./": NOT_ALLOWED, "https://openi.nlm.nih.gοv/": NO_URL,  # Greek
    "https://openi.nlm.nih.xn--gv-jbc/": NOT_ALLOWED, f"https://{HOST}%00.evil.example/": NO_URL,
    # user names, other ports, other schemes
    f"https://{HOST}@evil.example/": NO_URL, f"https://user:hunter2@{HOST}/": NO_URL,
    f"https://evil.example?@{HOST}/": NOT_ALLOWED, f"https://evil.example\\@{HOST}/": NO_URL,
    f"https://{HOST}:80/": "its port is 80", f"https://{HOST}:65536/": "port 65536",
    f"http://{HOST}/": "its scheme is http", "data:image/png;base64,AAAA": NO_URL, f"//{HOST}/": NO_URL, "": NO_URL,
    # a key in the query
    "https://evil.example/a?api_key=hunter2": NOT_ALLOWED, "https://evil.example/a?q=1&api_key=hunter2#hunter2": NO_URL,
    # characters
    f"https://{HOST}/a\r\nHost: evil.example\r\n\r\n": NO_URL, f"https://{HOST}/a b": NO_URL,
    f"https://{HOST}/\ud800": NO_URL, f"https://{HOST}/{'a' * 10_000}": NO_URL, None: NO_URL,
}  # fmt: skip


@each("url, reason", REFUSED.items())
def test_a_hostile_url_is_refused_with_a_reason(url, reason):
    with pytest.raises(RequestError) as caught:
        check_public_url(url, HOST)
    message = str(caught.value)
    assert reason in message
    assert f"allowed: https://{HOST}" in message
    assert message.isprintable()
    assert "hunter2" not in message
    assert "api_key" not in message
    assert len(message) < 500


# ---------------------------------------------------------------------- requests
def say_a(body, number):
    return send_bytes(200, b"a")


def fetch(transport, url=URL, **settings):
    settings = {"attempts": 1, "attempt_timeout": 5, "is_known": True, **settings}

    async def send():
        connection = Connection(f"https://{HOST}", transport=transport, **settings)
        return await connection.request("GET", url, bytes)

    return asyncio.run(send())


def fetch_from(folder, *answers, **settings):
    """Fetch from a server that sends these, one after the other; `answers` are functions of the handler."""
    with serve_tls(folder, lambda body, number: answers[min(number, len(answers) - 1)], HOST) as server:
        try:
            return fetch(StandIn(HOST, {HOST: server}), **settings)
        finally:
            fetch_from.server = server


def refuse(folder, *answers, **settings):
    """The error, which says nothing secret and is one line."""
    with pytest.raises(RequestError) as caught:
        fetch_from(folder, *answers, **settings)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700
    return caught.value


def send_chunks(handler):
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n")


def test_the_server_is_asked_for_what_the_url_says_under_its_name(tmp_path):
    url = f"https://{HOST}/imgs/a%20b.png?q=%C3%BC&x=1+2"
    assert fetch_from(tmp_path, send_chunks, url=url) == b"ab"
    server = fetch_from.server
    assert [one["path"] for one in server.requests] == ["/imgs/a%20b.png?q=%C3%BC&x=1+2"]
    headers = {name.lower(): value for name, value in server.requests[0]["headers"].items()}
    assert set(headers) == {"host", "user-agent", "accept", "accept-encoding", "connection"}
    assert (headers["host"], headers["accept-encoding"]) == (HOST, "identity")
    assert server.names == [HOST]


INSIDE = ["0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.0.2.1", "198.18.0.1"]
INSIDE += ["224.0.0.251", "239.255.255.250", "240.0.0.1", "::", "::1", "2001:db8::1", "::ffff:10.0.0.1", "fc00::1"]
INSIDE += ["fe80::1%eth0", "ff0e::1", "127.1", "127.0.0.1\n", "", "localhost"]


def test_addresses_inside_are_not_public_and_others_are():
    assert [address for address in INSIDE if is_public(address)] == []
    outside = [PUBLIC, "8.8.8.8", "100.63.255.255", "172.32.0.0", "2607:f220:41e:4290::110", "2a00:1450:4001::1"]
    assert all(map(is_public, outside))


@each("addresses", [["10.0.0.1"], [PUBLIC, "::1"], [PUBLIC, PUBLIC, "127.0.0.1", PUBLIC]])
def test_a_name_that_leads_inside_is_refused_and_nothing_is_sent(tmp_path, addresses):
    with serve_tls(tmp_path, say_a, HOST) as server:
        transport = StandIn(HOST, {HOST: server}, {HOST: addresses})
        with pytest.raises(RequestError, match=r"leads to .*; allowed: names with public addresses only"):
            fetch(transport, attempts=3)
    assert server.requests == []


def test_a_name_without_an_address_is_named():
    with pytest.raises(RequestError, match=r"no connection: openi.nlm.nih.gov has no address \(OSError\)"):
        fetch(StandIn(HOST, {}, {OTHER: []}))
    with pytest.raises(RequestError, match="has no address"):
        fetch(StandIn(HOST, {}, {HOST: []}))


def test_a_name_is_looked_up_once_and_the_judged_address_is_connected_to(tmp_path, monkeypatch):
    class Changing(StandIn):
        """A name that is public when it is asked first and leads inside ever after."""

        asked = 0

        async def resolve(self, name):
            self.asked += 1
            return [PUBLIC] if self.asked == 1 else ["127.0.0.1"]

    with serve_tls(tmp_path, say_a, HOST) as server:
        transport = Changing(HOST, {HOST: server})
        assert fetch(transport) == b"a"
        assert transport.asked == 1
        with pytest.raises(RequestError, match=r"leads to '127\.0\.0\.1'"):
            fetch(transport)
    assert len(server.requests) == 1


@each("first", ["130.14.29.9", "2607:f220:41e:4290::110"])
def test_the_next_address_of_a_name_is_tried_if_the_first_does_not_answer(tmp_path, first):
    with serve_tls(tmp_path, say_a, HOST) as server, serve(dict) as closed:
        transport = StandIn(HOST, {HOST: server}, {HOST: [first, PUBLIC]})
        transport.ports[first] = closed.server_port
        closed.shutdown()
        closed.server_close()
        assert fetch(transport) == b"a"


def drip_headers(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(2000):
        handler.wfile.write(f"X-{number}: a\r\n".encode())
        handler.wfile.flush()
        time.sleep(0.05)


BOMB = gzip.compress(bytes(50 * 2**20))
BROKEN = [
    hang_up, cut_body, send_raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    send_raw(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"a" * 2**20 + b"\r\n\r\n"),
    send_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    send_raw(b"HTTP/1.1 200 OK\r\nX: \x1b]52;c;a\x07\x00\r\n\r\n"),
]  # fmt: skip


@each("answer, words, settings", [
    *((send_bytes(302, b"", Location=to), "HTTP 302", {}) for to in (
        f"https://{OTHER}/", f"http://{HOST}/", "//127.0.0.1/", f"https://{HOST}:8443/", "https://[", "file:///a")),
    *((send_bytes(200, BOMB, Content_Encoding=coding), "is compressed", {}) for coding in (
        "gzip", "br", "identity, gzip", "x\x1b[2J")),
    (flood_body, "larger than 65536 bytes", {"max_body": 2**16}),
    (send_bytes(200, b"abc"), "larger than 2 bytes", {"max_body": 2}),
    *((slow, "no whole reply within 0.5 s", {"attempt_timeout": 0.5}) for slow in (
        drip_body, drip_headers, send_hints)),
    *((broken, "disconnected", {}) for broken in BROKEN),
])  # fmt: skip
def test_what_is_no_plain_reply_of_the_host_is_refused_and_little_of_it_is_read(tmp_path, answer, words, settings):
    started = time.monotonic()
    assert words in str(refuse(tmp_path, answer, **settings))
    assert time.monotonic() - started < 5
    assert len(fetch_from.server.requests) == 1
    assert not fetch_from.server.drained


def test_a_reply_of_just_the_size_is_read_and_after_a_broken_one_there_is_another_attempt(tmp_path):
    assert fetch_from(tmp_path, send_bytes(200, b"abc"), max_body=3) == b"abc"
    for broken in BROKEN:
        assert fetch_from(tmp_path, broken, send_bytes(200, b"a"), attempts=2, first_pause=0.01) == b"a"


# ---------------------------------------------------------------------- who answers
@each("name, authority", [(OTHER, None), (HOST, Authority())])
def test_a_server_that_cannot_prove_its_name_is_refused(tmp_path, name, authority):
    with (
        serve_tls(tmp_path, say_a, name, authority=authority) as server,
        pytest.raises(RequestError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        fetch(StandIn(HOST, {HOST: server}))
    assert server.requests == []


def test_the_environment_adds_no_authority_and_no_proxy(tmp_path, monkeypatch):
    other = Authority()
    file = tmp_path / "authority.pem"
    file.write_bytes(other.to_pem())
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with serve(lambda body, number: {}) as proxy:
        for variable in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(variable, proxy.url)
        assert fetch_from(tmp_path, send_bytes(200, b"a")) == b"a"
    assert proxy.connections == []
    with serve_tls(tmp_path, say_a, HOST, authority=other) as server:
        usual = StandIn(HOST, {HOST: server})
        PublicTransport.__init__(usual, HOST)  # with the usual authorities
        with pytest.raises(RequestError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(usual)
    assert server.requests == []


def test_a_server_without_tls_is_refused():
    with serve(lambda body, number: {}) as server, pytest.raises(RequestError, match="no connection"):
        fetch(StandIn(HOST, {HOST: server}))
    assert server.requests == []


def test_no_password_of_the_users_netrc_is_sent(tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text(f"machine {HOST} login me password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    fetch_from(tmp_path, send_bytes(200, b"a"))
    assert "Authorization" not in fetch_from.server.requests[0]["headers"]


def test_the_data_of_a_restricted_environment_goes_nowhere(tmp_path):
    def refuse_all(to):
        raise ConfigError(f"not to {to}")

    with guard_sending(refuse_all), pytest.raises(ConfigError, match=f"not to https://{HOST}"):
        fetch_from(tmp_path, send_bytes(200, b"a"))
    assert fetch_from.server.requests == []


def test_a_transport_reaches_its_own_host_only():
    async def send(url):
        async with httpx.AsyncClient(transport=PublicTransport(HOST)) as client:
            await client.get(url)

    for url in (f"https://{OTHER}/", f"http://{HOST}/", f"https://{HOST}:8443/", "https://127.0.0.1/"):
        with pytest.raises(RequestError, match="is not fetched"):
            asyncio.run(send(url))
