"""SOCKS, in all versions and commands."""

from attack import *

EVIL4, EVIL6 = bytes([198, 51, 100, 66]), socket.inet_pton(socket.AF_INET6, "2001:db8:1::66")
GOOD4 = bytes([198, 51, 100, 10])


def after_method(payload, methods=b"\x05\x01\x00"):
    with dial(*PROXY) as s:
        s.sendall(methods)
        read_exactly(s, 2)
        s.sendall(payload)
        try:
            head = read_exactly(s, 2)
        except ConnectionError:
            raise PermissionError("closed") from None
        if head[1]:
            raise PermissionError(f"SOCKS reply {head[1]}")
        return b"CANARY granted"


case("an allowed name", allowed=True)(lambda: socks(3, socks_name("good.example.com"), 80))
case("an allowed name, TLS port", allowed=True)(lambda: after_method(socks_request(3, socks_name("good.example.com"), 443)))
case("another name")(lambda: socks(3, socks_name("evil.example.org"), 80))
case("an address")(lambda: socks(1, EVIL4, 80))
case("an IPv6 address")(lambda: socks(4, EVIL6, 80))
case("the address of an allowed name")(lambda: socks(1, GOOD4, 80))
case("an address as a name")(lambda: socks(3, socks_name("198.51.100.66"), 80))
case("an address as a number as a name")(lambda: socks(3, socks_name("3325256770"), 80))
case("an IPv4 address mapped into IPv6")(lambda: socks(4, bytes(10) + b"\xff\xff" + EVIL4, 80))
case("loopback mapped into IPv6")(lambda: socks(4, bytes(10) + b"\xff\xff\x7f\0\0\1", 80))
for command, what in ((2, "BIND"), (3, "UDP ASSOCIATE"), (0, "command 0"), (0xF0, "Tor's RESOLVE"), (0xF1, "Tor's RESOLVE_PTR"), (255, "command 255")):
    case(f"{what} for an allowed name", False)(lambda command=command: after_method(socks_request(3, socks_name("good.example.com"), 80, command)))
    case(f"{what} for any address", False)(lambda command=command: after_method(socks_request(1, bytes(4), 0, command)))


@case("a datagram to the port of UDP ASSOCIATE", control=False)
def udp_relay():
    with dial(*PROXY) as s:
        s.sendall(b"\x05\x01\x00" + socks_request(1, bytes(4), 0, 3))
        read_exactly(s, 2)
        refused = read_exactly(s, 2)[1] != 0
    try:
        udp("127.0.0.1", 3128, b"\0\0\0\1" + EVIL4 + b"\0\x35hello")
        return b"CANARY"
    except ConnectionError:
        return b"" if refused else b"CANARY a relay"


case("SOCKS 4", False)(lambda: raw(b"\x04\x01\x00\x50" + EVIL4 + b"\0", until=(b"\x00\x5a", b"\r\n\r\n"), end=True).replace(b"\x00\x5a", b"CANARY"))
case("SOCKS 4a", False)(lambda: raw(b"\x04\x01\x00\x50\0\0\0\1u\0evil.example.org\0", until=(b"\x00\x5a", b"\r\n\r\n"), end=True).replace(b"\x00\x5a", b"CANARY"))
case("a name with a NUL", False)(lambda: socks(3, socks_name("good.example.com\0.evil.example.org"), 80))
case("an empty name", False)(lambda: socks(3, b"\0", 80))
case("a name with a port in it", False)(lambda: foreign(socks(3, socks_name("evil.example.org:80"), 80)))
case("a name with user information", False)(lambda: foreign(socks(3, socks_name("good.example.com@evil.example.org"), 80)))
case("the longest name", False)(lambda: foreign(socks(3, socks_name("a" * 255), 80)))
case("port 0", False)(lambda: after_method(socks_request(3, socks_name("good.example.com"), 0)))
case("an unknown kind of address", False)(lambda: after_method(socks_request(2, EVIL4, 80)))
case("another version in the request", False)(lambda: after_method(b"\x04" + socks_request(3, socks_name("good.example.com"), 80)[1:]))
case("only user and password", False)(lambda: after_method(socks_request(1, EVIL4, 80), b"\x05\x01\x02"))
case("no method at all", False)(lambda: after_method(socks_request(1, EVIL4, 80), b"\x05\x00"))
case("SOCKS in a tunnel of SOCKS", False)(lambda: socks(3, socks_name("good.example.com"), 80, b"\x05\x01\x00" + socks_request(1, EVIL4, 80) + b"\r\n\r\n"))
case("HTTP behind the greeting", False)(lambda: raw(b"\x05\x01\x00GET http://evil.example.org/ HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", until=(b"CANARY",)))

main()
