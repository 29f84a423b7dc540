"""Addresses that no policy gives, in every spelling, through the proxy and without it."""

import ipaddress

from attack import *


def spellings(address):
    """An IPv4 address as C programs, browsers and gateways write it."""
    n = int(ipaddress.IPv4Address(address))
    a, b, c, d = address.split(".")
    high, low = n >> 16, n & 0xFFFF
    return [
        address,
        address + ".",
        str(n),
        hex(n),
        hex(n).upper().replace("X", "x"),
        "0%o" % n,
        ".".join("0%o" % int(x) for x in (a, b, c, d)),
        ".".join("000%o" % int(x) for x in (a, b, c, d)),
        ".".join(hex(int(x)) for x in (a, b, c, d)),
        f"{a}.{n & 0xFFFFFF}",
        f"{a}.{b}.{low}",
        f"{hex(int(a))}.0{int(b):o}.{c}.{d}",
        "".join(chr(0xFF10 + int(x)) if x.isdigit() else x for x in address),
        address.replace(".", "\u3002"),
        address.replace(".", "\uff0e"),
        f"[::ffff:{address}]",
        f"[::ffff:{high:x}:{low:x}]",
        f"[0:0:0:0:0:FFFF:{address}]",
        f"[::{address}]",
        f"[::ffff:0:{high:x}:{low:x}]",
        f"[64:ff9b::{address}]",
        f"[64:ff9b::{high:x}:{low:x}]",
        f"[64:ff9b:1::{high:x}:{low:x}]",
        f"[2002:{high:x}:{low:x}::]",
        f"[2002:{high:x}:{low:x}::1]",
        f"[2001:0:{high:x}:{low:x}::1]",
    ]


def quiet(spelling):
    """Spellings that C's resolver does not read are proved for what they are by
    those that it does."""
    return not spelling.isascii() or spelling.startswith("0x") and spelling.upper().replace("X", "x") == spelling and not spelling.islower()


TARGETS = {"loopback": "127.0.0.1", "metadata": "169.254.169.254", "private": "10.1.2.3", "the host's own": "203.0.113.77"}
PLAIN = {
    "loopback": ["127.1", "127.0.1", "127.6.6.6", "0", "0.0.0.0", "00", "0x0", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "localhost", "LOCALHOST", "localhost.", "a.localhost", "ip6-localhost"],
    "metadata": ["[fd00:ec2::254]", "[FD00:0EC2:0:0:0:0:0:0254]", "[fd20:ce::254]", "100.100.100.200", "168.63.129.16", "192.0.0.192", "metadata.google.internal", "METADATA.google.internal.", "metadata", "169.254.170.2"],
    "private": ["192.168.0.1", "172.16.0.1", "172.31.255.255", "100.64.0.1", "198.18.0.1", "[fd00::5]", "[fec0::1]", "192.0.0.8", "240.0.0.1"],
    "the host's own": ["198.18.0.2", "[2001:db8:ffff::2]"],
    "link-local": ["169.254.0.1", "[fe80::1]", "[fe80::1%25out]", "[fe80::1%out]", "[::1%25lo]", "[::1%lo]"],
    "multicast": ["224.0.0.1", "[ff02::1]", "255.255.255.255"],
    "names": ["loop.example.com", "zero.example.com", "private.example.com", "meta.example.com", "own.example.com", "mapped.example.com", "nat64.example.com", "six.example.com", "127.0.0.1.nip.example.org"],
}
# Nothing answers there, or nothing can be sent: what is refused before is all
# that can be shown.
MUTE = ("224.0.0.1", "[ff02::1]", "255.255.255.255", "240.0.0.1", "[fe80::1]", "[fe80::1%25out]", "[::1%25lo]", "[::1%lo]", "[fe80::1%out]", "metadata", "a.localhost", "[fec0::1]")

for what in [*TARGETS, "link-local", "multicast", "names"]:
    list_ = (spellings(TARGETS[what]) if what in TARGETS else []) + PLAIN.get(what, [])
    for host in list_:
        control = host not in MUTE and not quiet(host)
        case(f"CONNECT to {what}: {ascii(host)}", control)(lambda host=host: connect(host + ":80"))
        case(f"GET from {what}: {ascii(host)}", control)(lambda host=host: get("http://" + host + "/"))
        if what != "multicast":  # to which TCP has no connections
            case(f"a connection to {what}: {ascii(host)}", control and "%" not in host)(lambda host=host: bare(host))
        inner = host.strip("[]")
        case(f"SOCKS to {what}: {ascii(host)}", control and not host.startswith("[::ffff:0:"))(lambda inner=inner: socks(3, socks_name(inner), 80))
        try:
            packed = ipaddress.ip_address(inner).packed
        except ValueError:
            continue
        if "%" not in inner:
            case(f"SOCKS to the address {what}: {ascii(host)}", control)(lambda packed=packed: socks(1 if len(packed) == 4 else 4, packed, 80))

for which in ("API", "GRPC"):
    port = option(which).rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "127.1", "0x7f000001", "[::ffff:127.0.0.1]", "loop.example.com", "203.0.113.77"):
        control = host not in ("203.0.113.77",)  # the daemon listens on loopback
        case(f"the daemon's port ({which}), CONNECT {host}", control)(lambda host=host, port=port: connect(f"{host}:{port}", request("/v1/sandboxes", "127.0.0.1")))
        case(f"the daemon's port ({which}), a connection to {host}", control)(lambda host=host, port=port: bare(host, int(port), request("/v1/sandboxes", "127.0.0.1")))
        case(f"the daemon's port ({which}), GET {host}", control)(lambda host=host, port=port: get(f"http://{host}:{port}/v1/sandboxes", "127.0.0.1"))
for port in (22, 53, 2375, 6379, 3128, 8099):
    case(f"CONNECT to the host's loopback, port {port}", port not in (3128, 8099))(lambda port=port: connect(f"127.0.0.1:{port}"))
    case(f"a connection to a name of the host's loopback, port {port}", port not in (3128, 8099))(lambda port=port: bare("loop.example.com", port))

main()
