"""A proxy without any policy: against it the attacks get through.

It takes CONNECT, absolute URLs, requests with a Host header and SOCKS 5, and
resolves as C programs do, with every old spelling of addresses.
"""

import re
import socket
import threading


def resolve(host, port):
    host = host.decode("utf-8", "replace").strip("[]")
    return socket.create_connection((host, port), 30)


def split(target, default):
    m = re.fullmatch(rb"(.*?)(?::(\d+))?", target) if not target.startswith(b"[") else re.fullmatch(rb"(\[.*\])(?::(\d+))?", target)
    return m[1], int(m[2] or default)


def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        b.close()


def join(client, up):
    t = threading.Thread(target=pump, args=(up, client), daemon=True)
    t.start()
    pump(client, up)
    t.join(30)
    up.close()


def exactly(s, n):
    got = b""
    while len(got) < n:
        part = s.recv(n - len(got))
        if not part:
            raise OSError("closed")
        got += part
    return got


def socks(client):
    client.sendall(b"\x05\x00")
    head = exactly(client, 4)
    if head[3] == 3:
        host = exactly(client, exactly(client, 1)[0])
    else:
        family, size = (socket.AF_INET, 4) if head[3] == 1 else (socket.AF_INET6, 16)
        host = socket.inet_ntop(family, exactly(client, size)).encode()
    port = int.from_bytes(exactly(client, 2), "big")
    up = resolve(host, port)
    client.sendall(b"\x05\x00\x00\x01" + bytes(6))
    join(client, up)


def http(client, first):
    head = first
    while b"\r\n\r\n" not in head:
        part = client.recv(65536)
        if not part:
            return
        head += part
    line = head.split(b"\r\n")[0]
    method, _, rest = line.partition(b" ")
    target = rest.rpartition(b" ")[0]
    if method == b"CONNECT":
        up = resolve(*split(target, 443))
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        early = head.split(b"\r\n\r\n", 1)[1]
        if early:
            up.sendall(early)
        join(client, up)
        return
    m = re.match(rb"(?:\w+:)?//([^/?#]*)(.*)", target)
    host, path = (m[1], m[2] or b"/") if m else (re.search(rb"(?i)\r\nhost:[ \t]*([^\r\n]*)", head)[1], target)
    up = resolve(*split(host.rpartition(b"@")[2], 80))
    up.sendall(method + b" " + path + b" HTTP/1.1" + head[len(line):])
    join(client, up)


def serve(client):
    with client:
        try:
            client.settimeout(30)
            first = exactly(client, 1)
            if first == b"\x05":
                exactly(client, exactly(client, 1)[0])
                socks(client)
            else:
                http(client, first)
        except Exception:  # whatever is wrong with a request ends its connection
            pass


listener = socket.create_server(("127.0.0.1", 3128), backlog=128)
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
