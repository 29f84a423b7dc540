"""What the attacks share: cases, ways to speak, and how to tell what came of it.

A case returns what it was answered. It got through when that is a canary's
answer, or the daemon's, that the sandbox must not see. What nobody answers got
through when the host sent it on: the test looks at the wire and at the host's
resolver.
"""

import json
import os
import re
import socket

PROXY = ("127.0.0.1", 3128)
TIMEOUT = 30
SHORT = 1  # for what shows itself on the wire, if anywhere
ALLOWED = {"198.51.100.10", "198.51.100.11", "2001:db8:1::10"}
MARKS = (b"CANARY", b'"sandboxes"')
cases = []


def case(name, control=True, allowed=False, leaves=""):
    """control: it gets through where nothing holds it. allowed: it is no attack,
    and gets through in the sandbox too. leaves: what is seen outside where
    nothing holds it, "udp ADDRESS:PORT" on the wire or "dns NAME." at the host's
    resolver; nobody needs to answer it then."""

    def add(attack):
        cases.append((name, attack, control, allowed, leaves))
        return attack

    return add


def main():
    for name, attack, control, allowed, leaves in cases:
        if on_host() and not (control or allowed or leaves):
            continue  # nothing would be shown
        error, answer = "", b""
        try:
            answer = attack() or b""
        except TimeoutError:
            error = "timeout"
        except Exception as e:
            answer, error = b"", f"{type(e).__name__}: {e}"
        note = error or answer[:200].decode("utf-8", "replace")
        line = {"case": name, "through": through(answer), "control": control, "allowed": allowed, "leaves": leaves, "timeout": error == "timeout", "note": note}
        print(json.dumps(line), flush=True)


def through(answer):
    return any(m in answer for m in MARKS)


def foreign(answer):
    """An answer without what comes from servers that are allowed, asked for
    themselves."""
    lines = []
    for line in answer.split(b"\n"):
        m = re.search(rb"CANARY address=(\S+) host=(\S*)", line)
        if m:
            host = m[2].decode("latin-1").lower().split(":")[0].rstrip(".")
            good = host == "good.example.com" or host.endswith(".wild.example.com") or host in ALLOWED
            if good and m[1].decode() in ALLOWED:
                continue
        lines.append(line)
    return b"\n".join(lines)


def read_all(s, until=MARKS):
    """What the other side says until it ends or has said a mark."""
    got = b""
    while not any(m in got for m in until):
        try:
            part = s.recv(65536)
        except ConnectionError:
            break
        if not part:
            break
        got += part
    while any(m in got for m in until) and not got.endswith(b"\n"):
        part = s.recv(65536)
        if not part:
            break
        got += part
    return got


def dial(host, port):
    return socket.create_connection((host, port), TIMEOUT)


def request(path="/", host="direct", version="1.0"):
    return f"GET {path} HTTP/{version}\r\nHost: {host}\r\n\r\n".encode()


def tcp(host, port, payload=None):
    with dial(host, port) as s:
        s.sendall(payload or request())
        return read_all(s)


def bare(host, port=80, payload=None):
    """By a socket of the program's own, which knows of no proxy."""
    host = as_bytes(host)
    return tcp(host.strip(b"[]") if b":" in host else host, port, payload)


def udp(host, port, payload=b"hello", timeout=TIMEOUT):
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, proto) as s:
        s.settimeout(timeout)
        if host.startswith("127."):
            s.connect(address)  # a port that nobody has is an error then
            s.send(payload)
        else:
            s.sendto(payload, address)
        return s.recvfrom(65536)[0]


def as_bytes(text):
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def raw(payload, until=MARKS, end=False):
    """What the proxy answers to bytes; end: and to their end."""
    with dial(*PROXY) as s:
        s.sendall(payload)
        if end:
            s.shutdown(socket.SHUT_WR)
        return read_all(s, until)


def tunnel(target):
    """A connection through CONNECT; its refusal otherwise."""
    s = dial(*PROXY)
    s.sendall(b"CONNECT " + as_bytes(target) + b" HTTP/1.1\r\nHost: " + as_bytes(target) + b"\r\n\r\n")
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        part = s.recv(1)
        if not part:
            break
        head += part
    if head.split(b" ")[1:2] != [b"200"]:
        s.close()
        raise PermissionError(head.split(b"\r\n")[0].decode("latin-1") or "closed")
    return s


def connect(target, payload=None):
    with tunnel(target) as s:
        s.sendall(payload or request())
        return read_all(s)


def get(url, host=None, head=""):
    """An absolute URL; the Host header is what it says unless host is given."""
    url = as_bytes(url)
    host = as_bytes(host) if host is not None else url.split(b"//", 1)[-1].split(b"/")[0]
    return raw(b"GET " + url + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n" + head.encode() + b"\r\n")


def socks_request(kind, address, port, command=1):
    return bytes([5, command, 0, kind]) + address + port.to_bytes(2, "big")


def socks_name(name):
    name = as_bytes(name)
    return bytes([len(name)]) + name


def socks(kind, address, port, payload=None, command=1):
    """A SOCKS 5 request without authentication, and what its tunnel answers."""
    with dial(*PROXY) as s:
        s.sendall(b"\x05\x01\x00")
        if read_exactly(s, 2) != b"\x05\x00":
            raise PermissionError("no method")
        s.sendall(socks_request(kind, address, port, command))
        reply = read_exactly(s, 4)
        if reply[1] != 0:
            raise PermissionError(f"SOCKS reply {reply[1]}")
        read_exactly(s, {1: 6, 4: 18}[reply[3]])
        s.sendall(payload or request())
        return read_all(s)


def read_exactly(s, n):
    got = b""
    while len(got) < n:
        part = s.recv(n - len(got))
        if not part:
            raise PermissionError("closed")
        got += part
    return got


def option(name):
    return os.environ["ATTACK_" + name]


def on_host():
    return "ATTACK_CONTROL" in os.environ
