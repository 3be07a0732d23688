"""URLs that are refused before a name is looked up or a connection made."""

import asyncio

import pytest

from viewbox.errors import ConfigError
from viewbox.network.data_policy import guard_sending
from viewbox.network.fetching import FetchError, fetch_url
from viewbox.network.fetching.network import Network
from viewbox.network.fetching.targets import check_allowed_hosts, judge_url

HOST = "openi.nlm.nih.gov"
AN_ADDRESS = "its host is an IP address"
NOT_ALLOWED = "its host is not an allowed one"
NO_HOST = "this is not a host"

REFUSED = {
    # this machine and its network, in every spelling
    "https://127.0.0.1/": AN_ADDRESS,
    "https://127.1/": AN_ADDRESS,
    "https://127.0.1/": AN_ADDRESS,
    "https://0x7f.0.0.1/": AN_ADDRESS,
    "https://0x7f000001/": AN_ADDRESS,
    "https://0177.0.0.1/": AN_ADDRESS,
    "https://017700000001/": AN_ADDRESS,
    "https://2130706433/": AN_ADDRESS,
    "https://127.0.0.1./": AN_ADDRESS,
    "https://0/": AN_ADDRESS,
    "https://0.0.0.0/": AN_ADDRESS,
    "https://10.0.0.1/": AN_ADDRESS,
    "https://0xa.1/": AN_ADDRESS,
    "https://167772161/": AN_ADDRESS,
    "https://172.16.0.1/": AN_ADDRESS,
    "https://192.168.1.1/": AN_ADDRESS,
    "https://192.168.257/": AN_ADDRESS,
    "https://0300.0250.1.1/": AN_ADDRESS,
    "https://169.254.169.254/latest/meta-data": AN_ADDRESS,
    "https://0xA9FEA9FE/": AN_ADDRESS,
    "https://2852039166/": AN_ADDRESS,
    "https://100.100.100.200/": AN_ADDRESS,
    "https://224.0.0.1/": AN_ADDRESS,
    "https://255.255.255.255/": AN_ADDRESS,
    "https://8.8.8.8/": AN_ADDRESS,
    "https://[::1]/": AN_ADDRESS,
    "https://[::]/": AN_ADDRESS,
    "https://[::ffff:127.0.0.1]/": AN_ADDRESS,
    "https://[::ffff:7f00:1]/": AN_ADDRESS,
    "https://[::127.0.0.1]/": AN_ADDRESS,
    "https://[64:ff9b::169.254.169.254]/": AN_ADDRESS,
    "https://[2002:7f00:1::]/": AN_ADDRESS,
    "https://[2001:0:7f00:1::]/": AN_ADDRESS,
    "https://[fd00:ec2::254]/": AN_ADDRESS,
    "https://[fe80::1]/": AN_ADDRESS,
    "https://[fe80::1%25eth0]/": "has a zone",
    "https://[fe80::1%eth0]/": "has a zone",
    "https://[::1%25lo]/": "has a zone",
    "https://[::1": NO_HOST,
    "https://[127.0.0.1]/": "not an IPv6 address",
    "https://[v1.x]/": NO_HOST,
    "https://[1:2:3:4:5:6:7:8:9]/": "not an IPv6 address",
    "https://localhost/": NOT_ALLOWED,
    "https://LOCALHOST/": NOT_ALLOWED,
    "https://metadata.google.internal/": NOT_ALLOWED,
    # the host looks like the allowed one
    f"https://{HOST}.evil.example/": NOT_ALLOWED,
    f"https://evil-{HOST}/": NOT_ALLOWED,
    f"https://x.{HOST}/": NOT_ALLOWED,
    "https://nlm.nih.gov/": NOT_ALLOWED,
    "https://openi-nlm.nih.gov/": NOT_ALLOWED,
    f"https://{HOST}./": NOT_ALLOWED,
    f"https://{HOST}../": "a label that is empty",
    "https://openi..nlm.nih.gov/": "a label that is empty",
    f"https://.{HOST}/": NO_HOST,
    "https://openi.nlm.nih.gοv/": "printable ASCII",  # Greek
    "https://openi.nlm.nih.gоv/": "printable ASCII",  # Cyrillic
    "https://openi。nlm。nih。gov/": "printable ASCII",
    "https://ｏpeni.nlm.nih.gov/": "printable ASCII",
    "https://openi.nlm.nih.gov\u200b/": "printable ASCII",
    "https://xn--openi-nlm-3ya.nih.gov/": NOT_ALLOWED,
    "https://openi.nlm.nih.xn--gv-jbc/": NOT_ALLOWED,
    "https://%6fpeni.nlm.nih.gov/": NO_HOST,
    f"https://{HOST}%00.evil.example/": NO_HOST,
    f"https://{HOST}%2eevil.example/": NO_HOST,
    f"https://{'a' * 64}.{HOST}/": "too long",
    "https://nip.io/": NOT_ALLOWED,
    "https://127.0.0.1.nip.io/": NOT_ALLOWED,
    # user names, other ports, other schemes
    f"https://{HOST}@evil.example/": "a user name",
    f"https://evil.example@{HOST}/": "a user name",
    f"https://user:hunter2@{HOST}/": "a user name",
    f"https://@{HOST}/": "a user name",
    f"https://evil.example#@{HOST}/": "a fragment",
    f"https://evil.example?@{HOST}/": NOT_ALLOWED,
    f"https://evil.example\\@{HOST}/": "a backslash",
    f"https://{HOST}\\.evil.example/": "a backslash",
    f"https://{HOST}:22/": "its port is 22",
    f"https://{HOST}:80/": "its port is 80",
    f"https://{HOST}:8443/": "its port is 8443",
    f"https://{HOST}:0/": "port 0",
    f"https://{HOST}:65536/": "port 65536",
    f"https://{HOST}:99999999/": NO_HOST,
    f"https://{HOST}:/": NO_HOST,
    f"https://{HOST}:443:443/": NO_HOST,
    f"http://{HOST}/": "its scheme is http",
    f"ftp://{HOST}/": "its scheme is ftp",
    f"gopher://{HOST}/": "its scheme is gopher",
    f"file://{HOST}/etc/passwd": "its scheme is file",
    "file:///etc/passwd": NO_HOST,
    "javascript:alert(1)": "it is not scheme://host",
    "data:image/png;base64,AAAA": "it is not scheme://host",
    f"//{HOST}/": "it is not scheme://host",
    HOST: "it is not scheme://host",
    f"https:/{HOST}/": "it is not scheme://host",
    f"https:{HOST}": "it is not scheme://host",
    "https://": NO_HOST,
    "https:///a": NO_HOST,
    "": "it is not scheme://host",
    # characters
    f" https://{HOST}/": "printable ASCII",
    f"https://{HOST}/\n": "printable ASCII",
    f"https://{HOST}/a\r\nHost: evil.example\r\n\r\n": "printable ASCII",
    f"ht\ntps://{HOST}/": "printable ASCII",
    f"https://{HOST}/\0": "printable ASCII",
    f"https://{HOST}/a b": "printable ASCII",
    f"https://{HOST}/\ud800": "printable ASCII",
    f"https://{HOST}/{'a' * 10_000}": "characters, more than",
    f"https://{HOST}/#/../../admin": "a fragment",
    None: "a NoneType",
    b"https://openi.nlm.nih.gov/": "a bytes",
}


async def look_up_nothing(host):
    raise AssertionError(f"{host} was looked up")


def fetch(url, **settings):
    return asyncio.run(fetch_url(url, **{"allowed_hosts": [HOST], "_network": Network(look_up_nothing), **settings}))


@pytest.mark.parametrize("url", REFUSED, ids=range(len(REFUSED)))
def test_a_hostile_url_is_refused_with_a_reason_and_nothing_is_looked_up(url):
    with pytest.raises(FetchError) as caught:
        fetch(url)
    message = str(caught.value)
    assert REFUSED[url] in message
    assert f"allowed: https://{HOST}" in message
    assert message.isprintable()
    assert "hunter2" not in message
    assert len(message) < 500
    assert not caught.value.temporary


@pytest.mark.parametrize("secret", ["api_key=hunter2", "q=1&api_key=hunter2#hunter2", "@hunter2"])
def test_no_error_repeats_the_query_which_may_hold_a_key(secret):
    with pytest.raises(FetchError) as caught:
        fetch(f"https://evil.example/a?{secret}")
    assert "api_key" not in str(caught.value)


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        "127.0.0.1",
        ["127.0.0.1"],
        ["127.1"],
        ["0x7f.1"],
        ["[::1]"],
        ["::1"],
        ["localhost"],
        ["*.nih.gov"],
        [".nih.gov"],
        ["nih.gov."],
        ["NIH.gov"],
        ["https://nih.gov"],
        ["nih.gov:443"],
        ["nih.gov\n"],
        ["nïh.gov"],
        ["a..gov"],
        ["-a.gov"],
        [""],
        [None],
        ["good.example", "10.0.0.1"],
    ],
    ids=repr,
)
def test_only_full_names_can_be_allowed(hosts):
    with pytest.raises(ConfigError, match="allowed_hosts"):
        fetch(f"https://{HOST}/", allowed_hosts=hosts)


def test_a_name_in_punycode_is_fetched_if_it_is_allowed_in_this_spelling():
    name = "xn--bcher-kva.example"
    assert judge_url(f"https://{name}/", check_allowed_hosts([name])).host == name


def test_the_data_of_a_restricted_environment_name_no_url_that_is_fetched():
    def refuse(to):
        raise ConfigError(f"not to {to}")

    with guard_sending(refuse), pytest.raises(ConfigError, match=f"not to https://{HOST}/"):
        fetch(f"https://{HOST}/a?question=what+is+this")
