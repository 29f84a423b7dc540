"""TLS that asks for another host than the connection was allowed for."""

import ssl
import struct

from attack import *

GOOD, EVIL = "good.example.com", "evil.example.org"
PATH = request("/", EVIL)


def plain(flight):
    return [flight]


def handshake(s, name, mangle=plain, versions=None, protocols=()):
    """TLS over a tunnel, whose first flight is changed on its way; what is
    answered to a request. The canary says which name it was asked for."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if versions:
        context.minimum_version, context.maximum_version = versions
    if protocols:
        context.set_alpn_protocols(protocols)
    come, go = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(come, go, server_hostname=name)
    first = True
    while True:
        try:
            secured.do_handshake()
            break
        except ssl.SSLWantReadError:
            flight = go.read()
            for part in mangle(flight) if first else [flight]:
                s.sendall(part)
            first = False
            got = s.recv(65536)
            if not got:
                raise PermissionError("closed in the handshake")
            come.write(got)
    secured.write(PATH)
    s.sendall(go.read())
    answer = b""
    while not answer.endswith(b"\n"):
        try:
            answer += secured.read(65536)
        except ssl.SSLWantReadError:
            got = s.recv(65536)
            if not got:
                break
            come.write(got)
    if name and name != GOOD and f"sni={name}".encode() not in answer:
        raise RuntimeError("the attack did not ask for another name")
    return answer


def by_connect(target):
    return tunnel(target + ":443")


def by_socks(target):
    s = dial(*PROXY)
    s.sendall(b"\x05\x01\x00" + socks_request(3, socks_name(target), 443))
    read_exactly(s, 2)
    if read_exactly(s, 10)[1]:
        raise PermissionError("refused")
    return s


def by_itself(target):
    return dial(target, 443)


DOORS = {"by CONNECT": by_connect, "by SOCKS": by_socks, "without a proxy": by_itself}


def tls(what, name, mangle=plain, control=True, allowed=False, target=GOOD, result=lambda answer: answer, **how):
    """A case for every way to a host."""
    for door, by in DOORS.items():

        def attack(by=by):
            with by(target) as s:
                return result(handshake(s, name, mangle, **how))

        case(f"{what}, {door}", control, allowed)(attack)


def message(flight):
    """What is in the records of a flight."""
    body = b""
    while flight:
        size = int.from_bytes(flight[3:5], "big")
        body, flight = body + flight[5 : 5 + size], flight[5 + size :]
    return body


def records(sizes):
    """The handshake message cut into records of these sizes, the last of which
    takes the rest."""

    def mangle(flight):
        head, body, out, at = flight[:3], message(flight), [], 0
        for size in [*sizes, len(body)]:
            part = body[at : at + size]
            at += size
            out.append(head + struct.pack(">H", len(part)) + part if part else b"")
        return [b"".join(out)]

    return mangle


def dribble(flight):
    return [flight[i : i + 1] for i in range(len(flight))]


def after(record):
    return lambda flight: [record + flight]


WARNING = b"\x15\x03\x01\x00\x02\x01\x5a"  # user_canceled, which servers pass over
TLS12 = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
TLS13 = (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)

tls("the allowed name", GOOD, allowed=True)
tls("the allowed name in many records", GOOD, records([1, 1, 3, 40]), allowed=True)
tls("the allowed name byte by byte", GOOD, dribble, allowed=True)
tls("no name", None, allowed=True)

for other in (EVIL, "xgood.example.com", "good.example.com.evil.example.org", "www.good.example.com", "a.wild.example.com"):
    tls(f"the name {other}", other)
tls("another name, TLS 1.2", EVIL, versions=TLS12)
tls("another name, TLS 1.3", EVIL, versions=TLS13)
tls("another name, byte by byte", EVIL, dribble)
tls("another name, in records of one byte", EVIL, records([1] * 120))
# More bytes of records than a hello may have, for a hello that servers take.
LONG = ["http/1.1"] + ["a" * 255] * 100
tls("another name, in a long hello", EVIL, protocols=LONG)
tls("another name, in a long hello in records of one byte", EVIL, lambda f: records([1] * len(message(f)))(f), protocols=LONG)
tls("another name, cut within itself", EVIL, lambda f: records([f.index(EVIL.encode()) - 5 + 4])(f))
tls("another name, behind a warning", EVIL, after(WARNING))
tls("another name, behind three warnings", EVIL, after(WARNING * 3))
tls("another name, behind an alert that closes", EVIL, after(b"\x15\x03\x01\x00\x02\x01\x00"), control=False)
tls("another name, behind an empty record", EVIL, after(b"\x16\x03\x01\x00\x00"), control=False)
tls("another name, behind a change of ciphers", EVIL, after(b"\x14\x03\x03\x00\x01\x01"), control=False)
tls("another name, behind a heartbeat", EVIL, after(b"\x18\x03\x03\x00\x03\x01\x00\x00"), control=False)
tls("another name, behind a line end", EVIL, after(b"\r\n"), control=False)
tls("another name in a connection to another allowed host", EVIL, target="a.wild.example.com")
tls("the SNI of an allowed host in a connection to another", GOOD + ".evil.example.org")
case("an allowed name at the address of a host that is denied")(lambda: handshake(by_itself("198.51.100.66"), GOOD))
case("an allowed name at its own address, which is not allowed")(lambda: handshake(by_itself("198.51.100.10"), GOOD))


def two_names(flight):
    """A second entry in the list of names, and every length around it."""
    entry = b"\x00" + struct.pack(">H", len(EVIL)) + EVIL.encode()
    name = GOOD.encode()
    at = flight.index(name)
    grown = bytearray(flight[: at + len(name)] + entry + flight[at + len(name) :])
    for position, size in ((at - 5, 2), (at - 7, 2), (at - 9 + 0, 0)):
        if size:
            value = int.from_bytes(grown[position : position + size], "big") + len(entry)
            grown[position : position + size] = value.to_bytes(size, "big")
    return [lengths(bytes(grown), len(entry))]


def lengths(flight, more):
    """The lengths of the record, the message and its extensions, grown."""
    b = bytearray(flight)

    def grow(at, size):
        b[at : at + size] = (int.from_bytes(b[at : at + size], "big") + more).to_bytes(size, "big")

    grow(3, 2)
    grow(6, 3)
    at = 5 + 4 + 2 + 32
    at += 1 + b[at]
    at += 2 + int.from_bytes(b[at : at + 2], "big")
    at += 1 + b[at]
    grow(at, 2)
    return bytes(b)


def foreign_name(answer):
    return answer if EVIL.encode() in answer.partition(b"sni=")[2].partition(b" ")[0] else b""


def extension_twice(flight):
    name = GOOD.encode()
    at = flight.index(name) - 9
    extension = b"\x00\x00" + struct.pack(">HHBH", len(EVIL) + 5, len(EVIL) + 3, 0, len(EVIL)) + EVIL.encode()
    return [lengths(flight[:at] + extension + flight[at:], len(extension))]


tls("two names in one list", GOOD, two_names, control=False, result=foreign_name)
tls("the extension twice", GOOD, extension_twice, control=False, result=foreign_name)

main()
