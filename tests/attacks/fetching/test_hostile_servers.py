"""Servers that redirect inside, never end, send too much, or send something else: real ones, with TLS."""

import asyncio
import gzip
import time
import tracemalloc

import pytest

from tests.attacks.fetching.makers import BAD, declare_size, encode
from tests.support.servers import cut_body, drip_body, flood_body, hang_up, make_response, send_bytes, serve
from tests.support.tls_server import Authority, make_network, serve_tls
from viewbox.errors import ImageError
from viewbox.images.files import open_image
from viewbox.network.fetching import TEXTS, FetchError, fetch_url

HOST, OTHER = "openi.nlm.nih.gov", "www.ncbi.nlm.nih.gov"
URL = f"https://{HOST}/a.png"


def fetch(network, url=URL, **settings):
    settings = {"allowed_hosts": [HOST], "timeout": 5, **settings}
    return asyncio.run(fetch_url(url, _network=network, **settings))


def fetch_from(folder, *answers, **settings):
    """Fetch from a server that sends these, one after the other; `answers` are functions of the handler."""
    with serve_tls(folder, lambda body, number: answers[min(number, len(answers) - 1)], HOST) as server:
        try:
            return fetch(make_network({HOST: server}), **settings)
        finally:
            fetch_from.requests, fetch_from.flooded = server.requests, server.flooded


def refuse(folder, *answers, **settings):
    """The error, and that it says nothing secret and is one line."""
    with pytest.raises(FetchError) as caught:
        fetch_from(folder, *answers, **settings)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700
    return caught.value


# ---------------------------------------------------------------------- what comes back
@pytest.mark.parametrize("name", BAD)
def test_what_is_not_wholly_a_picture_is_refused(tmp_path, name):
    content, reason = BAD[name]
    error = refuse(tmp_path, send_bytes(200, content, Content_Type="image/png"))
    assert reason in str(error)
    assert "allowed: image/jpeg, image/png" in str(error)
    assert not error.temporary


@pytest.mark.parametrize("size", [(100_000, 100_000), (2**31 - 1, 2**31 - 1), (1000, 1000)])
def test_a_picture_that_unpacks_to_more_than_it_is_ends_at_the_isolated_decoder(tmp_path, size):
    found = fetch_from(tmp_path, send_bytes(200, declare_size(*size)))
    with pytest.raises(ImageError):
        open_image(found.content)


@pytest.mark.parametrize("types", [{"image/png"}, TEXTS])
def test_only_the_types_asked_for_are_taken(tmp_path, types):
    error = refuse(tmp_path, send_bytes(200, encode("JPEG")), types=types)
    assert f"it is image/jpeg; allowed: {', '.join(sorted(types))}" in str(error)


@pytest.mark.parametrize(
    "coding", ["gzip", "deflate", "br", "zstd", "GZIP", "gzip, gzip", "identity, gzip", "x\x1b[2J"]
)
def test_compressed_content_is_refused_and_never_unpacked(tmp_path, coding):
    bomb = gzip.compress(bytes(50 * 2**20))
    error = refuse(tmp_path, send_bytes(200, bomb, Content_Encoding=coding))
    assert "the content is compressed" in str(error)
    assert fetch_from.requests[0]["headers"]["Accept-Encoding"] == "identity"


def test_a_second_header_cannot_hide_the_compression(tmp_path):
    def send(handler):
        handler.send_response(200)
        for name, value in (("Content-Encoding", "identity"), ("Content-Encoding", "gzip"), ("Content-Length", 0)):
            handler.send_header(name, str(value))
        handler.end_headers()

    assert "compressed (gzip)" in str(refuse(tmp_path, send))


# ---------------------------------------------------------------------- too much, too slow
def test_a_content_that_says_it_is_too_large_is_not_read(tmp_path):
    error = refuse(tmp_path, flood_body)
    assert "larger than 10485760 bytes" in str(error)
    assert fetch_from.flooded < 20 * 2**20  # what the sockets hold; 50 MB were to come


def test_a_content_without_a_length_is_read_to_the_limit_only(tmp_path):
    def send(handler):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while True:
            handler.wfile.write(b"10000\r\n" + bytes(65536) + b"\r\n")
            handler.server.flooded += 65536

    tracemalloc.start()
    try:
        error = refuse(tmp_path, send, max_bytes=2**20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "larger than 1048576 bytes" in str(error)
    assert peak < 16 * 2**20


def test_one_byte_more_than_allowed_is_refused_and_as_many_are_not(tmp_path):
    content = encode()
    assert fetch_from(tmp_path, send_bytes(200, content), max_bytes=len(content)).content == content
    assert "larger than" in str(refuse(tmp_path, send_bytes(200, content), max_bytes=len(content) - 1))


def drip_headers(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(2000):
        handler.wfile.write(f"X-{number}: a\r\n".encode())
        handler.wfile.flush()
        time.sleep(0.05)


def send_hints_forever(handler):
    while True:
        handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        time.sleep(0.01)


def wait_forever(handler):
    time.sleep(30)


@pytest.mark.parametrize("answer", [drip_body, drip_headers, send_hints_forever, wait_forever])
def test_a_slow_server_costs_the_time_limit_only(tmp_path, answer):
    started = time.monotonic()
    error = refuse(tmp_path, answer, timeout=0.5)
    assert "nothing whole came within 0.5 s" in str(error)
    assert error.temporary
    assert time.monotonic() - started < 5


def test_redirects_have_one_time_limit_together(tmp_path):
    def send(handler):
        time.sleep(0.3)
        make_response(302, "", Location="/b.png")(handler)

    assert "nothing whole came within 0.5 s" in str(refuse(tmp_path, send, timeout=0.5))


def send_raw(text):
    def send(handler):
        handler.wfile.write(text)
        handler.close_connection = True

    return send


BROKEN = {
    "hangs up": hang_up,
    "half a body": cut_body,
    "no HTTP": send_raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    "1 MB of headers": send_raw(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"a" * 2**20 + b"\r\n\r\n"),
    "a length that is none": send_raw(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
    "two lengths": send_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    "a compressed transfer": send_raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"),
    "a chunk that is none": send_raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "control characters": send_raw(b"HTTP/1.1 200 OK\r\nX: \x1b]52;c;a\x07\x00\r\n\r\n"),
    "a status of letters": send_raw(b"HTTP/1.1 abc OK\r\n\r\n"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_response_is_a_temporary_failure(tmp_path, name):
    error = refuse(tmp_path, BROKEN[name])
    assert "cannot be fetched: " in str(error)
    assert error.temporary


@pytest.mark.parametrize(
    ("status", "temporary"),
    [(201, False), (204, False), (206, False), (300, False), (304, False), (305, False), (400, False), (401, False),
     (403, False), (404, False), (407, False), (408, True), (410, False), (429, True), (500, True), (503, True)],
)  # fmt: skip
def test_another_status_is_named_and_says_whether_to_try_again(tmp_path, status, temporary):
    answer = send_bytes(status, b"", Location=f"https://{HOST}/b", Retry_After="7", Set_Cookie="a=b")
    error = refuse(tmp_path, answer)
    assert f"HTTP {status}" in str(error)
    assert (error.status, error.temporary, error.retry_after) == (status, temporary, 7)
    assert len(fetch_from.requests) == 1


# ---------------------------------------------------------------------- redirects
AWAY = {
    "http://openi.nlm.nih.gov/a.png": "its scheme is http",
    "https://127.0.0.1/a.png": "an IP address (127.0.0.1)",
    "https://[::1]/": "an IP address (::1)",
    "https://2130706433/": "an IP address (127.0.0.1)",
    "//169.254.169.254/latest/meta-data": "an IP address (169.254.169.254)",
    "//evil.example/a.png": "not an allowed one",
    "https://evil.example/a.png": "not an allowed one",
    f"https://{OTHER}/a.png": "not an allowed one",
    f"https://{HOST}@evil.example/": "a user name",
    f"https://me:hunter2@{HOST}/": "a user name",
    f"https://{HOST}:8443/": "its port is 8443",
    f"https://{HOST}./": "not an allowed one",
    f"https://{HOST}\\@evil.example/": "characters that a URL does not have",
    "/\\evil.example/": "characters that a URL does not have",
    "\\\\evil.example\\a": "characters that a URL does not have",
    "https://evil.example\t/": "characters that a URL does not have",
    "https://gооgle.example/".encode().decode("latin-1"): "ascii",
    "file:///etc/passwd": "this is not a host",
    "ftp://openi.nlm.nih.gov/": "its scheme is ftp",
    "javascript:alert(1)": "it is not scheme://host",
    "data:image/png;base64,AAAA": "it is not scheme://host",
    "gopher://127.0.0.1:6379/_FLUSHALL": "its scheme is gopher",
    "/a.png#b": "a fragment",
    "https://[": "Invalid IPv6 URL",
    "": "characters that a URL does not have",
    "/" + "a" * 9000: "characters, more than",
}


@pytest.mark.parametrize("location", AWAY, ids=range(len(AWAY)))
@pytest.mark.parametrize("status", [302, 307])
def test_a_redirect_is_judged_as_a_url_is(tmp_path, location, status):
    error = refuse(tmp_path, send_bytes(status, b"", Location=location))
    assert f"'{URL}' redirects, and that is not followed: " in str(error)
    assert AWAY[location] in str(error)
    assert "hunter2" not in str(error)
    assert len(fetch_from.requests) == 1


def test_a_redirect_without_one_address_is_refused(tmp_path):
    assert "not one address" in str(refuse(tmp_path, send_bytes(302, b"")))

    def send(handler):
        handler.send_response(302)
        handler.send_header("Location", "/b.png")
        handler.send_header("Location", "https://evil.example/")
        handler.end_headers()

    assert "not one address" in str(refuse(tmp_path, send))


def test_redirects_end(tmp_path):
    assert "redirects more than 3 times" in str(refuse(tmp_path, make_response(302, "", Location="/a.png")))
    assert len(fetch_from.requests) == 4


def test_a_redirect_to_an_allowed_name_that_leads_inside_is_refused(tmp_path):
    async def look_up(host):
        return {HOST: ["130.14.29.1"], OTHER: ["10.0.0.1"]}[host]

    moved = send_bytes(302, b"", Location=f"https://{OTHER}/a.png")
    with (
        serve_tls(tmp_path, lambda body, number: moved, HOST) as server,
        pytest.raises(FetchError, match=r"www\.ncbi\.nlm\.nih\.gov .* leads to '10\.0\.0\.1', which is private"),
    ):
        fetch(make_network({HOST: server}, look_up), allowed_hosts=[HOST, OTHER])


def test_nothing_of_one_response_is_sent_to_the_next(tmp_path):
    moved = send_bytes(302, b"", Location=f"https://{OTHER}/b.png", Set_Cookie="session=abc; Domain=nih.gov")
    with (
        serve_tls(tmp_path, lambda body, number: moved, HOST) as server,
        serve_tls(tmp_path, lambda body, number: send_bytes(200, encode()), OTHER) as other,
    ):
        network = make_network({HOST: server, OTHER: other})
        found = fetch(network, f"{URL}?api_key=hunter2", allowed_hosts=[HOST, OTHER])
    assert found.url == f"https://{OTHER}/b.png"
    assert set(other.requests[0]["headers"]) == {"Host", "User-Agent", "Accept", "Accept-Encoding", "Connection"}
    assert "hunter2" not in str(other.requests)


# ---------------------------------------------------------------------- who answers
def test_a_server_with_a_certificate_for_another_name_is_refused(tmp_path):
    with (
        serve_tls(tmp_path, lambda body, number: send_bytes(200, encode()), OTHER) as server,
        pytest.raises(FetchError, match="certificate verify failed"),
    ):
        fetch(make_network({HOST: server}))
    assert server.requests == []


def test_a_server_of_an_unknown_authority_is_refused(tmp_path):
    with (
        serve_tls(tmp_path, lambda body, number: send_bytes(200, encode()), HOST, authority=Authority()) as server,
        pytest.raises(FetchError, match="certificate verify failed"),
    ):
        fetch(make_network({HOST: server}))
    assert server.requests == []


def test_the_environment_adds_no_authority(tmp_path, monkeypatch):
    other = Authority()
    file = tmp_path / "authority.pem"
    file.write_bytes(other.to_pem())
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with serve_tls(tmp_path, lambda body, number: send_bytes(200, encode()), HOST, authority=other) as server:
        network = make_network({HOST: server})
        usual = type(network)(network.resolve, network.stand_ins)  # with the usual authorities
        with pytest.raises(FetchError, match="certificate verify failed"):
            fetch(usual)
    assert server.requests == []


def test_a_server_without_tls_is_refused():
    with serve(lambda body, number: {}) as server, pytest.raises(FetchError, match="cannot be fetched"):
        fetch(make_network({HOST: server}))
    assert server.requests == []


def test_a_server_that_is_not_there_is_a_temporary_failure():
    with serve(lambda body, number: {}) as server:
        network = make_network({HOST: server})
    with pytest.raises(FetchError, match="cannot be fetched") as caught:
        fetch(network)
    assert caught.value.temporary


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY"])
def test_a_proxy_of_the_environment_is_not_used(tmp_path, monkeypatch, variable):
    with serve(lambda body, number: {}) as proxy:
        monkeypatch.setenv(variable, proxy.url)
        assert fetch_from(tmp_path, send_bytes(200, encode())).content == encode()
    assert proxy.connections == []


def test_no_password_of_the_users_netrc_is_sent(tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text(f"machine {HOST} login me password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    fetch_from(tmp_path, send_bytes(200, encode()))
    assert "Authorization" not in fetch_from.requests[0]["headers"]
