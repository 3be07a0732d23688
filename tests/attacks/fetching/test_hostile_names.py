"""Names that lead inside: every address of an allowed name is judged, once, and no other is connected to."""

import asyncio
import random
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attacks.fetching.makers import encode
from tests.support.servers import send_bytes
from tests.support.tls_server import make_network, serve_tls
from viewbox.network.fetching import FetchError, fetch_url
from viewbox.network.fetching.network import Network, find_problem

HOST = "openi.nlm.nih.gov"
PUBLIC = "130.14.29.110"
INSIDE = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "10.0.0.1": "private",
    "10.255.255.255": "private",
    "100.64.0.1": "CGNAT",
    "100.100.100.200": "CGNAT",
    "100.127.255.255": "CGNAT",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "168.63.129.16": "internal to a cloud",
    "169.254.169.254": "link-local",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.192": "reserved",
    "192.0.2.1": "documentation",
    "192.88.99.1": "6to4",
    "192.168.0.1": "private",
    "198.18.0.1": "benchmarks",
    "198.51.100.1": "documentation",
    "203.0.113.1": "documentation",
    "224.0.0.251": "multicast",
    "239.255.255.250": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "broadcast",
    "::": "unspecified",
    "::1": "loopback",
    "::ffff:127.0.0.1": "mapped",
    "::ffff:8.8.8.8": "mapped",
    "::ffff:0:127.0.0.1": "translated",
    "::127.0.0.1": "compatible",
    "::a00:1": "compatible",
    "64:ff9b::a00:1": "NAT64",
    "64:ff9b::808:808": "NAT64",
    "64:ff9b:1::a00:1": "NAT64",
    "100::1": "discarded",
    "2001::1": "Teredo",
    "2001:0:53aa:64c:0:0:f5ff:fffe": "Teredo",
    "2001:2::1": "protocols",
    "2001:10::1": "protocols",
    "2001:20::1": "protocols",
    "2001:db8::1": "documentation",
    "2002:7f00:1::1": "6to4",
    "2002:808:808::1": "6to4",
    "2607:f220:41e:4290:0:5efe:10.0.0.1": "ISATAP",
    "2607:f220:41e:4290:200:5efe:a00:1": "ISATAP",
    "3ffe::1": "6bone",
    "3fff::1": "documentation",
    "4000::1": "reserved",
    "5f00::1": "segment routing",
    "e000::1": "reserved",
    "fc00::1": "private",
    "fd00:ec2::254": "private",
    "fe80::1": "link-local",
    "fe80::1%eth0": "zone",
    "2607:f220::1%1": "zone",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
    "ff0e::1": "multicast",
    "127.1": "no IP address",
    "0x7f000001": "no IP address",
    "2130706433": "no IP address",
    "127.0.0.1\n": "no IP address",
    "": "no IP address",
    "localhost": "no IP address",
    "/run/docker.sock": "no IP address",
}
OUTSIDE = [PUBLIC, "8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.1"]
OUTSIDE += ["223.255.255.255", "2607:f220:41e:4290::110", "2a00:1450:4001::1", "2001:4860:4860::8888"]


def fetch(network):
    return asyncio.run(fetch_url(f"https://{HOST}/a.png", allowed_hosts=[HOST], timeout=5, _network=network))


def give(*addresses):
    async def look_up(host):
        return list(addresses)

    return Network(look_up)


@pytest.mark.parametrize("address", INSIDE, ids=repr)
def test_a_name_that_leads_inside_is_refused(address):
    with pytest.raises(FetchError) as caught:
        fetch(give(address))
    message = str(caught.value)
    assert f"leads to {address!r}, which is " in message
    assert INSIDE[address] in message
    assert "allowed: names with public addresses only" in message


@pytest.mark.parametrize("address", ["10.0.0.1", "::1", "fe80::1%eth0"])
@pytest.mark.parametrize("place", [0, 1, 9])
def test_one_bad_address_among_good_ones_refuses_the_name(address, place):
    addresses = [PUBLIC] * 9
    addresses.insert(place, address)
    with pytest.raises(FetchError, match="leads to"):
        fetch(give(*addresses))


@pytest.mark.parametrize("address", OUTSIDE)
def test_public_addresses_are_public(address):
    assert find_problem(address) is None


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_what_is_public_here_is_global_to_the_standard_library(address):
    if find_problem(str(address)) is None:
        assert address.is_global
        assert not any([address.is_multicast, address.is_reserved, address.is_private])


def test_every_address_with_an_inside_one_in_it_is_refused():
    draw = random.Random(0)
    inside = [int(IPv4Address(one)) for one in ("10.0.0.1", "127.0.0.1", "169.254.169.254", "192.168.0.1")]
    shapes = ["::ffff:0:0", "::", "64:ff9b::", "64:ff9b:1::", "::ffff:0:0:0", "2607:f220::5efe:0:0"]
    for one in inside:
        assert find_problem(str(IPv4Address(one)))
        for shape in shapes:
            assert find_problem(str(IPv6Address(int(IPv6Address(shape)) | one)))
        rest = draw.getrandbits(80)
        assert find_problem(str(IPv6Address((0x2002 << 112) | (one << 80) | rest)))  # 6to4
        assert find_problem(str(IPv6Address((0x2001 << 112) | (one << 64) | (draw.getrandbits(64)))))  # Teredo


def test_a_name_without_an_address_is_named():
    async def look_up(host):
        raise OSError(-2, "Name or service not known")

    with pytest.raises(FetchError, match=r"its name has no address \(Name or service not known\)") as caught:
        fetch(Network(look_up))
    assert caught.value.temporary
    with pytest.raises(FetchError, match="its name has no address"):
        fetch(give())
    with pytest.raises(FetchError, match="65 addresses; allowed: 64"):
        fetch(give(*[PUBLIC] * 65))


def test_a_name_server_that_never_answers_costs_the_time_limit_only():
    async def look_up(host):
        await asyncio.sleep(60)

    with pytest.raises(FetchError, match=r"nothing whole came within 0\.2 s"):
        asyncio.run(fetch_url(f"https://{HOST}/", allowed_hosts=[HOST], timeout=0.2, _network=Network(look_up)))


# ---------------------------------------------------------------------- names that change between look-ups
class Changing:
    """A name that is public when it is asked first and leads inside ever after."""

    def __init__(self, first):
        self.first, self.asked = first, 0

    async def __call__(self, host):
        self.asked += 1
        return [self.first] if self.asked == 1 else ["127.0.0.1"]


def test_a_name_is_looked_up_once_and_the_judged_address_is_connected_to(tmp_path, monkeypatch):
    with serve_tls(tmp_path, lambda body, number: send_bytes(200, encode()), HOST) as server:
        network = make_network({HOST: server}, changing := Changing("130.14.29.1"))

        async def refuse(*args, **kwargs):
            raise AssertionError("the machine's own resolver was asked")

        async def play():
            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", refuse)
            return await fetch_url(f"https://{HOST}/a.png", allowed_hosts=[HOST], _network=network)

        assert asyncio.run(play()).content == encode()
    assert changing.asked == 1
    assert server.names == [HOST]
    assert server.requests[0]["headers"]["Host"] == HOST


def test_a_redirect_to_the_same_name_keeps_the_judged_address(tmp_path):
    def answer(body, number):
        return send_bytes(200, encode()) if number else send_bytes(302, b"", Location="/b.png")

    with serve_tls(tmp_path, answer, HOST) as server:
        network = make_network({HOST: server}, changing := Changing("130.14.29.1"))
        assert fetch(network).url == f"https://{HOST}/b.png"
    assert changing.asked == 1


def test_the_next_fetch_looks_again_and_refuses(tmp_path):
    with serve_tls(tmp_path, lambda body, number: send_bytes(200, encode()), HOST) as server:
        network = make_network({HOST: server}, Changing("130.14.29.1"))
        fetch(network)
        with pytest.raises(FetchError, match="loopback"):
            fetch(network)
    assert len(server.requests) == 1
