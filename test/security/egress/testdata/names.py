"""Names that look like allowed ones, and are not."""

from attack import *

GOOD = ["good.example.com", "GOOD.EXAMPLE.COM", "good.example.com.", "a.wild.example.com", "a.b.WILD.example.com.", "wild.example.com"]
# Others' names, which a resolver takes.
EVIL = [
    "evil.example.org",
    "evilgood.example.com",
    "xgood.example.com",
    "good.example.com.evil.example.org",
    "good.example.com.evil.example.org.",
    "evilwild.example.com",
    "notwild.example.com",
    "wild.example.com.evil.example.org",
    "a.wild.example.com.example.org",
    "example.com",
    "www.good.example.com",
    "good.example.co",
    "good-example.com",
    "xn--gd-immf.example.com",
    "g\u043e\u043ed.example.com",  # Cyrillic
    "good.example.com\u3002evil.example.org",
    "good.example.com\uff0eevil.example.org",
    "g\u200bood.example.com.evil.example.org",
    "denied.example.com",
    "DENIED.example.com.",
    "denynet.example.com",
    "198.51.100.66",
    "[2001:db8:1::66]",
    "192.0.2.9",
    "0xc0000209",
    "[64:ff9b::192.0.2.9]",
    "[2002:c000:209::1]",
]
# What is no name at all.
BROKEN = [
    "good.example.com%2eevil.example.org",
    "good.example.com%00.evil.example.org",
    "good.example.com\0.evil.example.org",
    "evil.example.org\0good.example.com",
    "evil.example.org%23good.example.com",
    "evil.example.org#good.example.com",
    "evil.example.org?good.example.com",
    "evil.example.org/good.example.com",
    "evil.example.org\\good.example.com",
    "evil.example.org;good.example.com",
    "evil.example.org,good.example.com",
    "evil.example.org good.example.com",
    "evil.example.org\tgood.example.com",
    "*.wild.example.com",
    ".good.example.com",
    "good..example.com",
    "good.example.com..",
    "-good.example.com",
    "a" * 64 + ".wild.example.com",
    ("a" * 60 + ".") * 5 + "wild.example.com",
    "a." * 200 + "wild.example.com",
    "[good.example.com]",
    "[198.51.100.66]",
    "[198.51.100.10",
    "",
    ".",
    "@",
    "*",
]

for name in GOOD:
    case(f"CONNECT to the allowed {ascii(name)}", allowed=True)(lambda name=name: connect(name + ":80"))
    case(f"GET from the allowed {ascii(name)}", allowed=True)(lambda name=name: get(f"http://{name}/"))
    case(f"SOCKS to the allowed {ascii(name)}", allowed=True)(lambda name=name: socks(3, socks_name(name), 80))
    case(f"a connection to the allowed {ascii(name)}", allowed=True)(lambda name=name: bare(name))
for name in EVIL + BROKEN:
    control = name in EVIL and not ("\u200b" in name)
    case(f"CONNECT to {ascii(name)}", control)(lambda name=name: foreign(connect(name + ":80")) if name else raw(b"CONNECT :80 HTTP/1.1\r\nHost: x\r\n\r\n"))
    case(f"GET from {ascii(name)}", control and name.isascii())(lambda name=name: foreign(get(f"http://{name}/")))
    # Names in C end at a NUL. The family resolver asks for such ones.
    if "\0" not in name:
        case(f"a connection to {ascii(name)}", control and name.isascii())(lambda name=name: foreign(bare(name)))
    if len(name.encode()) < 256:
        case(f"SOCKS to {ascii(name)}", control)(lambda name=name: foreign(socks(3, socks_name(name.strip("[]") if name in EVIL else name), 80)))

USERINFO = [
    "good.example.com@evil.example.org",
    "good.example.com:80@evil.example.org",
    "good.example.com%2F@evil.example.org",
    "good.example.com:a@evil.example.org",
    "a@good.example.com@evil.example.org",
    "good.example.com#@evil.example.org",
    "good.example.com?@evil.example.org",
    "good.example.com\\@evil.example.org",
    "good.example.com/@evil.example.org",
]
for target in USERINFO:
    plain = not any(c in target for c in "#?\\/")
    case(f"user information: GET {target}", plain)(lambda target=target: foreign(get(f"http://{target}/", "evil.example.org")))
    case(f"user information: CONNECT {target}", False)(lambda target=target: foreign(connect(target + ":80", request("/", "evil.example.org"))))

for port in (22, 53, 8080, 8443, 2375):
    case(f"CONNECT to another port of an allowed host, {port}", port != 8443)(lambda port=port: connect(f"good.example.com:{port}"))
    case(f"a connection to another port of an allowed host, {port}", port != 8443)(lambda port=port: bare("good.example.com", port))
    case(f"GET from another port of an allowed host, {port}", port != 8443)(lambda port=port: get(f"http://good.example.com:{port}/"))
    case(f"SOCKS to another port of an allowed host, {port}", port != 8443)(lambda port=port: socks(3, socks_name("good.example.com"), port))
for port in ("0", "65536", "65616", "-1", "+80", "0x50", "080", "80 ", " 80", "\u0668\u0660", "80:443", "", "http", "4294967376"):
    if port == "080":
        continue
    case(f"CONNECT to the port {ascii(port)}", False)(lambda port=port: connect(f"good.example.com:{port}", request("/", "evil.example.org")))

case("a network that is allowed", allowed=True)(lambda: connect("192.0.2.8:80"))
case("a network that is allowed, without a proxy", allowed=True)(lambda: bare("192.0.2.8"))
case("a network that is allowed, written as a number, without a proxy", allowed=True)(lambda: bare("0xc0000208"))
case("an address of it that is denied, without a proxy")(lambda: bare("192.0.2.9"))
case("an address of it that is denied, mapped into IPv6, without a proxy")(lambda: bare("::ffff:192.0.2.9"))
case("a port of it that is not allowed, without a proxy")(lambda: bare("192.0.2.8", 8080))
case("a private network that only the sandbox allows, without a proxy")(lambda: bare("10.9.9.9"))
case("an allowed name that leads to a private address and a good one, without a proxy", allowed=True)(lambda: bare("mixed.example.com", payload=request(host="mixed.example.com")))
case("the address of a host that is allowed by name")(lambda: bare("198.51.100.10"))
case("the address of a host that is allowed by name, and its name in the request")(lambda: bare("198.51.100.10", payload=request(host="good.example.com")))
case("a network that is allowed, written as a number", allowed=True)(lambda: connect("0xc0000208:80"))
case("an address of it that is denied")(lambda: connect("192.0.2.9:80"))
case("an address of it that is denied, mapped into IPv6")(lambda: connect("[::ffff:192.0.2.9]:80"))
case("a port of it that is not allowed")(lambda: connect("192.0.2.8:8080"))
case("a private network that only the sandbox allows")(lambda: connect("10.9.9.9:80"))
case("an allowed name that leads to a private address and a good one", allowed=True)(lambda: get("http://mixed.example.com/"))

main()
