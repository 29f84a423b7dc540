"""HTTP that says two things at once, and what else comes to a proxy's port."""

import struct
import urllib.parse
import urllib.request

from attack import *

GOOD, EVIL = "good.example.com", "evil.example.org"
URL = f"http://{GOOD}/"
# A request for another host, in full and as what follows a body.
SECOND = f"GET http://{EVIL}/second HTTP/1.1\r\nHost: {EVIL}\r\nConnection: close\r\n\r\n"
ORIGIN = f"GET /second HTTP/1.1\r\nHost: {EVIL}\r\nConnection: close\r\n\r\n"


def smuggle(*payload):
    """Every answer to bytes, without those of the allowed host itself."""
    data = b"".join(p if isinstance(p, bytes) else p.encode("latin-1") for p in payload)
    with dial(*PROXY) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        got = b""
        try:
            while part := s.recv(65536):
                got += part
        except ConnectionError:
            pass
        return foreign(got)


case("the allowed host", allowed=True)(lambda: get(URL))
case("a Host header of another host")(lambda: foreign(get(URL, EVIL)))
case("a Host header of a host that is denied")(lambda: foreign(get(URL, "denied.example.com")))
case("no Host header, HTTP/1.0", False)(lambda: smuggle(f"GET {URL} HTTP/1.0\r\n\r\n"))
case("a Host header and no absolute URL")(lambda: smuggle(f"GET / HTTP/1.1\r\nHost: {EVIL}\r\nConnection: close\r\n\r\n"))
case("a Host header of the allowed host and an absolute URL of another")(lambda: foreign(get(f"http://{EVIL}/", GOOD).replace(b"host=" + GOOD.encode(), b"host=forged")))
case("a Host header of the metadata service, no absolute URL")(lambda: smuggle("GET /latest/meta-data/ HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n"))
case("CONNECT whose Host header is another")(lambda: foreign(raw(f"CONNECT {EVIL}:80 HTTP/1.1\r\nHost: {GOOD}:80\r\n\r\n".encode() + request("/", EVIL))))

TWICE = {
    "two Host headers": f"Host: {GOOD}\r\nHost: {EVIL}\r\n",
    "two Host headers, the other first": f"Host: {EVIL}\r\nHost: {GOOD}\r\n",
    "a space before the colon": f"Host : {EVIL}\r\nHost: {GOOD}\r\n",
    "a folded Host header": f"Host: {GOOD}\r\n {EVIL}\r\n",
    "a folded first header": f" Host: {EVIL}\r\nHost: {GOOD}\r\n",
    "a tab in the Host header": f"Host:\t{EVIL}\r\n",
    "a NUL in the Host header": f"Host: {GOOD}\0{EVIL}\r\n",
    "a list of hosts": f"Host: {GOOD}, {EVIL}\r\n",
    "a bare CR": f"X: a\rHost: {EVIL}\r\nHost: {GOOD}\r\n",
    "a bare LF": f"X: a\nHost: {EVIL}\nHost: {GOOD}\r\n",
    "X-Forwarded-Host and its kin": f"Host: {GOOD}\r\nX-Forwarded-Host: {EVIL}\r\nX-Host: {EVIL}\r\nForwarded: host={EVIL}\r\nX-Original-URL: http://{EVIL}/\r\nX-Rewrite-URL: http://{EVIL}/\r\n",
    "Connection that names Host": f"Host: {GOOD}\r\nConnection: Host, close\r\n",
    "Proxy-Connection and Proxy-Authorization": f"Host: {GOOD}\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Bearer x\r\n",
    "Max-Forwards and Via": f"Host: {GOOD}\r\nMax-Forwards: 0\r\nVia: 1.1 {EVIL}\r\n",
}
for what, head in TWICE.items():
    control = what == "a tab in the Host header"
    case(f"the header: {what}", control)(lambda head=head: smuggle(f"GET {URL} HTTP/1.1\r\n{head}Connection: close\r\n\r\n"))

LINES = {
    "an absolute URL in an absolute URL": f"GET {URL}http://{EVIL}/ HTTP/1.1",
    "two URLs": f"GET {URL} http://{EVIL}/ HTTP/1.1",
    "a tab for a space": f"GET\t{URL}\tHTTP/1.1",
    "a NUL in the URL": f"GET http://{GOOD}\0.{EVIL}/ HTTP/1.1",
    "a line end in the URL": f"GET http://{GOOD}/%0d%0aHost:%20{EVIL}%0d%0a HTTP/1.1",
    "a network-path URL": f"GET //{EVIL}/ HTTP/1.1",
    "a URL without a scheme": f"GET {EVIL}/ HTTP/1.1",
    "an opaque URL": f"GET http:{EVIL} HTTP/1.1",
    "backslashes": f"GET http:\\\\{EVIL}\\ HTTP/1.1",
    "three slashes": f"GET http:///{EVIL}/ HTTP/1.1",
    "https": f"GET https://{EVIL}/ HTTP/1.1",
    "ftp": f"GET ftp://{EVIL}/ HTTP/1.1",
    "file": "GET file:///etc/passwd HTTP/1.1",
    "gopher": f"GET gopher://{EVIL}:80/_GET HTTP/1.1",
    "unix": "GET http+unix://%2Fvar%2Frun%2Fdocker.sock/info HTTP/1.1",
    "OPTIONS *": "OPTIONS * HTTP/1.1",
    "TRACE": f"TRACE http://{EVIL}/ HTTP/1.1",
    "CONNECT with a URL": f"CONNECT http://{EVIL}/ HTTP/1.1",
    "CONNECT with a path": f"CONNECT /{EVIL}:80 HTTP/1.1",
    "CONNECT without a port": f"CONNECT {EVIL} HTTP/1.1",
    "CONNECT in lower case": f"connect {EVIL}:80 HTTP/1.1",
    "HTTP/0.9": f"GET http://{EVIL}/",
    "HTTP/2.0": f"GET http://{EVIL}/ HTTP/2.0",
    "HTTP/1.10": f"GET http://{EVIL}/ HTTP/1.10",
}
for what, line in LINES.items():
    control = what in ("a network-path URL", "TRACE")
    case(f"the request line: {what}", control)(lambda line=line: smuggle(f"{line}\r\nHost: {EVIL}\r\nConnection: close\r\n\r\n"))

POST = f"POST {URL} HTTP/1.1\r\nHost: {GOOD}\r\n"
SMUGGLED = {
    "a second request on the connection": f"GET {URL} HTTP/1.1\r\nHost: {GOOD}\r\n\r\n" + ORIGIN,
    "a second request with an absolute URL": f"GET {URL} HTTP/1.1\r\nHost: {GOOD}\r\n\r\n" + SECOND,
    "after a body, Content-Length": POST + "Content-Length: 3\r\n\r\nabc" + ORIGIN,
    "after a body, chunked": POST + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + ORIGIN,
    "Content-Length and chunked": POST + f"Content-Length: {5 + len(ORIGIN)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + ORIGIN,
    "chunked and a short Content-Length": POST + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + f"{len(ORIGIN):x}\r\n{ORIGIN}\r\n0\r\n\r\n",
    "two lengths": POST + f"Content-Length: 0\r\nContent-Length: {len(ORIGIN)}\r\n\r\n" + ORIGIN,
    "a length with a sign": POST + "Content-Length: +0\r\n\r\n" + ORIGIN,
    "a list of lengths": POST + f"Content-Length: 0, {len(ORIGIN)}\r\n\r\n" + ORIGIN,
    "xchunked": POST + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + ORIGIN,
    "chunked twice": POST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + ORIGIN,
    "a space before the colon of chunked": POST + f"Transfer-Encoding : chunked\r\nContent-Length: {5 + len(ORIGIN)}\r\n\r\n0\r\n\r\n" + ORIGIN,
    "a folded chunked": POST + f"Transfer-Encoding:\r\n chunked\r\nContent-Length: {5 + len(ORIGIN)}\r\n\r\n0\r\n\r\n" + ORIGIN,
    "a vertical tab before chunked": POST + f"Transfer-Encoding: \x0bchunked\r\nContent-Length: {5 + len(ORIGIN)}\r\n\r\n0\r\n\r\n" + ORIGIN,
    "chunk extensions with a line end": POST + "Transfer-Encoding: chunked\r\n\r\n0;a=\n" + ORIGIN + "\r\n\r\n",
    "a chunk size beyond 64 bits": POST + "Transfer-Encoding: chunked\r\n\r\n1ffffffffffffffff0\r\n" + ORIGIN,
    "bare line ends in chunks": POST + "Transfer-Encoding: chunked\r\n\r\n0\n\n" + ORIGIN,
    "trailers": POST + f"Transfer-Encoding: chunked\r\nTrailer: Host\r\n\r\n0\r\nHost: {EVIL}\r\n\r\n",
    "GET with a body": f"GET {URL} HTTP/1.1\r\nHost: {GOOD}\r\nContent-Length: {len(ORIGIN)}\r\n\r\n" + ORIGIN,
    "Expect": POST + f"Expect: 100-continue\r\nContent-Length: {len(ORIGIN)}\r\n\r\n" + ORIGIN,
    "Upgrade that is not answered": f"GET {URL} HTTP/1.1\r\nHost: {GOOD}\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n" + ORIGIN,
    "CONNECT that is refused, and a request": f"CONNECT {EVIL}:80 HTTP/1.1\r\nHost: {EVIL}\r\n\r\n" + ORIGIN,
    "CONNECT with a body": f"CONNECT {EVIL}:80 HTTP/1.1\r\nHost: {EVIL}\r\nContent-Length: 5\r\n\r\nhello" + SECOND,
}
REACHES = ("a second request on the connection", "after a body, Content-Length", "after a body, chunked")
for what, payload in SMUGGLED.items():
    case(f"smuggling: {what}", what in REACHES)(lambda payload=payload: smuggle(payload))


@case("a redirect to a host that is not allowed")
def redirect():
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": "http://127.0.0.1:3128"}))
    return foreign(opener.open(URL + "redirect?to=" + urllib.parse.quote(f"http://{EVIL}/"), timeout=TIMEOUT).read())


@case("a redirect to the metadata service")
def redirect_metadata():
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": "http://127.0.0.1:3128"}))
    return foreign(opener.open(URL + "redirect?to=http://169.254.169.254/", timeout=TIMEOUT).read())


@case("a redirect is the client's to follow", control=False)
def redirect_not_followed():
    answer = get(URL + f"redirect?to=http://{EVIL}/")
    return b"" if answer.startswith(b"HTTP/1.1 302") else b"CANARY " + answer


def frame(kind, flags, stream, body):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def literal(name, value):
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def h2(authority, method="GET", path="/"):
    head = literal(":method", method) + literal(":authority", authority)
    if method != "CONNECT":
        head += literal(":scheme", "http") + literal(":path", path)
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 5, 1, head)


def speaks_h2(payload):
    got = raw(payload, until=(b"\r\n\r\n",))
    return b"CANARY speaks HTTP/2" if got[3:4] == b"\x04" else got


case("HTTP/2 with prior knowledge", False)(lambda: speaks_h2(h2(EVIL)))
case("HTTP/2 with prior knowledge, CONNECT", False)(lambda: speaks_h2(h2(EVIL + ":80", "CONNECT")))
case("TLS to the proxy's port", False)(lambda: raw(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", until=(b"\r\n\r\n",), end=True))
case("bytes that are no protocol", False)(lambda: smuggle(bytes(range(256)) * 4))
case("DNS over HTTPS through the proxy")(lambda: connect("dns.example.net:443").replace(b"an HTTPS server", b"CANARY"))
case("DNS over HTTPS through the proxy, by address")(lambda: connect("1.1.1.1:53"))
case("DNS over TCP through the proxy")(lambda: socks(1, bytes([8, 8, 8, 8]), 53))


@case("what a tunnel to an allowed host carries is that host's affair", allowed=True)
def tunnelled_host():
    return connect(GOOD + ":80", request("/", EVIL))


@case("what a connection to an allowed host carries is that host's affair", allowed=True)
def carried_host():
    return bare(GOOD, 80, request("/", EVIL))


# Without a proxy: what is said on a connection that was denied goes nowhere.
ADDRESS = "198.51.100.66"
SPOKEN = {
    "a Host header of an allowed host": (request("/", GOOD), True),
    "an absolute URL of an allowed host": (request(URL, GOOD), True),
    "a request for a proxy": (f"CONNECT {EVIL}:80 HTTP/1.1\r\nHost: {EVIL}\r\n\r\n".encode() + request("/", EVIL), False),
    "a second request behind the refusal": ((ORIGIN.replace("close", "keep-alive") + ORIGIN).encode(), True),
    "a line of the door's own": (f"{GOOD}:80\n".encode() + ORIGIN.encode(), False),
    "an address for a proxy in front": (f"PROXY TCP4 198.51.100.10 198.51.100.10 80 80\r\n{ORIGIN}".encode(), False),
    "SOCKS": (b"\x05\x01\x00" + socks_request(3, socks_name(GOOD), 80) + ORIGIN.encode(), False),
    "HTTP/2": (h2(GOOD), False),
    "half a request": (b"GET / HT", False),
    "a request in parts": (b"G", False),
    "bytes that are no protocol": (bytes(range(256)) * 4, False),
    "the first two bytes of TLS": (b"\x16\x03", False),
}
for what, (payload, control) in SPOKEN.items():
    for host in (ADDRESS, EVIL, "denied.example.com"):
        case(f"without a proxy, to {host}: {what}", control)(lambda host=host, payload=payload: bare(host, 80, payload))


main()
