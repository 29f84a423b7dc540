"""UNIX sockets: the host's, other sandboxes' and the channel of this one."""

import glob
import os

from attack import *


def unix(address, payload=b"", kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as s:
        s.settimeout(TIMEOUT)
        s.connect(address)
        if payload:
            s.sendall(payload)
        return read_all(s)


case("an abstract socket of the host")(lambda: unix("\0" + option("ABSTRACT")))


@case("every abstract socket that /proc/net/unix shows")
def listed():
    answer = b""
    with open("/proc/net/unix") as f:
        for line in f.readlines()[1:]:
            name = line.split()[7:]
            if name and name[0].startswith("@" + option("ABSTRACT")[:4]):
                answer += unix("\0" + name[0][1:])
    return answer


@case("an abstract datagram socket of the host", control=False)
def abstract_datagram():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.connect("\0" + option("ABSTRACT"))
        return b"CANARY connected"


case("a socket in a directory of the host")(lambda: unix(option("SOCKET")))


@case("the same through /proc/*/root, cwd and fd")
def through_proc():
    answer = b""
    for pid in ("1", "self", *filter(str.isdigit, os.listdir("/proc"))):
        for link in [f"/proc/{pid}/root", f"/proc/{pid}/cwd", *glob.glob(f"/proc/{pid}/fd/*")]:
            try:
                fd = os.open(link + "/" + "../" * 8 + option("SOCKET"), os.O_PATH)
            except OSError:
                continue
            try:
                answer += unix(f"/proc/self/fd/{fd}")
            except OSError as e:
                answer += e.strerror.encode()
            finally:
                os.close(fd)
            if through(answer):
                return answer
    return answer


for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"):
    case(f"{path}", control=False)(lambda path=path: unix(path, b"GET /info HTTP/1.0\r\n\r\n") and b"CANARY it answers")


@case("the channel of another sandbox")
def other_channel():
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(TIMEOUT)
        s.connect(option("CHANNEL"))
        return b"CANARY connected"


HTTP = b"GET http://good.example.com/ HTTP/1.1\r\nHost: good.example.com\r\nConnection: close\r\n\r\n"
HELLOS = {
    "no first line": b"",
    "a wrong secret": b"CUBBY1 wrong egress\n",
    "an empty secret": b"CUBBY1  egress\n",
    "a secret of zeros": b"CUBBY1 " + b"0" * 64 + b" egress\n",
    "no secret": b"CUBBY1 egress\n",
    "the control connection": b"CUBBY1 wrong control\n",
    "the pool": b"CUBBY1 wrong pool\n",
    "a connection": b"CUBBY1 wrong connect\ngood.example.com:80\n",
    "a connection, no secret": b"CUBBY1 connect\ngood.example.com:80\n",
    "a question about names": b"CUBBY1 wrong resolve\ngood.example.com\n",
    "a question about names, an empty secret": b"CUBBY1  resolve\ngood.example.com\n",
    "a NUL": b"CUBBY1 \0 egress\n",
    "an endless line": b"CUBBY1 " + b"a" * 65536,
}
for what, hello in HELLOS.items():

    def channel(hello=hello):
        answer = b""
        for path in glob.glob("/run/cubby/*"):
            try:
                if unix(path, hello + HTTP):
                    answer += b"CANARY it answers"
            except (ConnectionError, BrokenPipeError) as e:
                answer += e.strerror.encode()
        return answer

    case(f"this sandbox's own channel: {what}", control=False)(channel)


@case("the channel's socket replaced by one's own", control=False)
def replaced():
    for path in glob.glob("/run/cubby/*"):
        os.rename(path, path + ".old")
        os.rename(path + ".old", path)
        return b"CANARY it was moved"


case("the proxy, as it is meant", allowed=True)(lambda: get("http://good.example.com/"))

main()
