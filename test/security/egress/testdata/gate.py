"""A connection that was allowed, while what allowed it changes: the canary lets
the test change the world before it answers /gate."""

from attack import *

HOST = option("HOST")
kept, own = dial(*PROXY), dial(HOST, 80)
ADDRESS = own.getpeername()[0]


def ask(path):
    kept.sendall(request(f"http://{HOST}{path}", HOST, "1.1"))
    return read_all(kept)


def ask_directly(path):
    own.sendall(request(path, HOST, "1.1"))
    return read_all(own)


case("without a proxy, before the change", allowed=True)(lambda: ask_directly("/"))
case("before the change", allowed=True)(lambda: ask("/gate"))
if option("KEPT") == "refused":
    case("the next request on the same connection")(lambda: ask("/"))
# What a connection of a program's own carries is not looked at: it goes on, until
# it ends or is cut.
case("without a proxy, the next request on the same connection", allowed=True)(lambda: ask_directly("/"))
case("without a proxy, a new connection")(lambda: bare(HOST))
case("without a proxy, a new connection to the address of before")(lambda: bare(ADDRESS))
case("a new request")(lambda: get(f"http://{HOST}/"))
case("a new tunnel")(lambda: connect(f"{HOST}:80"))
case("a new tunnel of SOCKS")(lambda: socks(3, socks_name(HOST), 80))

main()
