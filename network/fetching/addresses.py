"""Which IP addresses are public. Everything else is somebody's inside: this machine, its network, its cloud.

The networks are those of IANA's registries of special-purpose addresses
(https://www.iana.org/assignments/iana-ipv4-special-registry, https://www.iana.org/assignments/iana-ipv6-special-registry)
and of multicast and reserved space (RFC 5771, RFC 1112, RFC 4291). They are listed here, because what the standard
library calls global changed between versions of Python.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_V4 = {
    "0.0.0.0/8": "unspecified",  # RFC 791: this host on this network; Linux connects 0.0.0.0 to itself
    "10.0.0.0/8": "private",  # RFC 1918
    "100.64.0.0/10": "shared by a provider's customers (CGNAT)",  # RFC 6598; also metadata of Alibaba Cloud
    "127.0.0.0/8": "loopback",  # RFC 1122
    "168.63.129.16/32": "internal to a cloud (Azure)",  # a public address that only Azure's own machines reach
    "169.254.0.0/16": "link-local",  # RFC 3927; also metadata of most clouds
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved for protocols",  # RFC 6890; also metadata of Oracle Cloud
    "192.0.2.0/24": "reserved for documentation",  # RFC 5737
    "192.88.99.0/24": "a relay of IPv4 in IPv6 (6to4)",  # RFC 7526
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "reserved for benchmarks",  # RFC 2544
    "198.51.100.0/24": "reserved for documentation",
    "203.0.113.0/24": "reserved for documentation",
    "224.0.0.0/4": "multicast",  # RFC 5771
    "255.255.255.255/32": "broadcast",
    "240.0.0.0/4": "reserved",  # RFC 1112
}
_V6 = {
    "::/128": "unspecified",
    "::1/128": "loopback",
    "::ffff:0:0/96": "IPv4 in IPv6 (mapped)",  # RFC 4291
    "::ffff:0:0:0/96": "IPv4 in IPv6 (translated)",  # RFC 2765
    "::/96": "IPv4 in IPv6 (compatible)",
    "64:ff9b::/96": "IPv4 in IPv6 (NAT64)",  # RFC 6052
    "64:ff9b:1::/48": "IPv4 in IPv6 (NAT64)",  # RFC 8215
    "100::/64": "discarded",  # RFC 6666
    "2001::/32": "IPv4 in IPv6 (Teredo)",  # RFC 4380
    "2001::/23": "reserved for protocols",  # RFC 2928
    "2001:db8::/32": "reserved for documentation",  # RFC 3849
    "2002::/16": "IPv4 in IPv6 (6to4)",  # RFC 3056
    "3ffe::/16": "reserved (6bone)",  # RFC 3701
    "3fff::/20": "reserved for documentation",  # RFC 9637
    "5f00::/16": "reserved for segment routing",  # RFC 9602
    "fc00::/7": "private",  # RFC 4193
    "fe80::/10": "link-local",
    "fec0::/10": "private (site-local)",  # RFC 3879
    "ff00::/8": "multicast",
}
_NETWORKS_4 = [(IPv4Network(network), reason) for network, reason in _V4.items()]
_NETWORKS_6 = [(IPv6Network(network), reason) for network, reason in _V6.items()]
_GLOBAL_UNICAST = IPv6Network("2000::/3")  # all that IANA has given out
_ISATAP = (0x00005EFE, 0x02005EFE)  # RFC 5214: the third quarter of an address with an IPv4 address after it


def find_problem(address: str) -> str | None:
    """Why an address is not a public one; None if it is.

    Args:
        address: as a name server returns it; of an IPv6 address with a zone nothing is allowed.

    >>> find_problem("130.14.29.110"), find_problem("2607:f220:41e:4290::110")
    (None, None)
    >>> find_problem("10.1.2.3"), find_problem("::ffff:8.8.8.8"), find_problem("fe80::1%eth0")
    ('private', 'IPv4 in IPv6 (mapped)', 'of one link only (it has a zone)')
    """
    if "%" in address:
        return "of one link only (it has a zone)"
    try:
        read = ip_address(address)
    except ValueError:
        return "no IP address"
    if isinstance(read, IPv4Address):
        return next((reason for network, reason in _NETWORKS_4 if read in network), None)
    return _find_problem_6(read)


def _find_problem_6(address: IPv6Address) -> str | None:
    for network, reason in _NETWORKS_6:
        if address in network:
            return reason
    if address not in _GLOBAL_UNICAST:
        return "reserved"
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return "IPv4 in IPv6 (ISATAP)"
    return None
