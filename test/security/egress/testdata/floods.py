"""More names, questions and connections than a sandbox may have at once. What they
cost is the sandbox's own way out, and only while they last."""

import struct
import time

from attack import *

SERVER = ("127.0.0.1", 53)
MOST = 8192  # names that have an address


def query(name, number=7):
    labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split("."))
    return struct.pack(">HHHHHH", number, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)


def address(name):
    return socket.gethostbyname(name)


def flood():
    """Asks for more names than have addresses, 32 at a time."""
    answered = 0
    with socket.create_connection(SERVER, TIMEOUT) as s:
        for first in range(0, MOST + 64, 32):
            packets = [query(f"flood{n}.wild.example.com", n) for n in range(first, first + 32)]
            s.sendall(b"".join(struct.pack(">H", len(p)) + p for p in packets))
            for _ in packets:
                reply = read_exactly(s, struct.unpack(">H", read_exactly(s, 2))[0])
                answered += reply[7] == 1
    return answered


kept = dial("a.wild.example.com", 80)
OWN = kept.getpeername()[0]
FORGOTTEN = address("b.wild.example.com")


@case("a name for each of more than have addresses", control=False, allowed=True)
def names():
    answered = flood()
    return b"CANARY" if answered == MOST + 64 else b"%d were answered" % answered


case("the address of a name that was forgotten", control=False)(lambda: bare(FORGOTTEN))


@case("the address of a name that has a connection", control=False, allowed=True)
def own():
    if address("a.wild.example.com") != OWN:
        return b"it has another one"
    return bare(OWN)


@case("the connection itself", control=False, allowed=True)
def kept_connection():
    kept.sendall(request())
    return read_all(kept)


@case("a name again", control=False, allowed=True)
def again():
    return bare("a.b.wild.example.com")


@case("streams to the name server that say nothing", control=False, allowed=True)
def silent_streams():
    held = [socket.create_connection(SERVER, TIMEOUT) for _ in range(100)]
    try:
        return bare("a.wild.example.com")  # by UDP
    finally:
        for s in held:
            s.close()


@case("connections that say nothing, to what is denied", control=False, allowed=True)
def silent_connections():
    held = []
    for n in range(2000):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(("198.51.100.66", 1 + n))
        held.append(s)
    for s in held:
        s.close()
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            return bare("a.wild.example.com")
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


main()
