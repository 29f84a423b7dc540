"""A connection that was allowed, while what allowed it changes: the canary lets
the test change the world before it answers /gate."""

from attack import *

HOST = option("HOST")
kept = dial(*PROXY)


def ask(path):
    kept.sendall(request(f"http://{HOST}{path}", HOST, "1.1"))
    return read_all(kept)


case("before the change", allowed=True)(lambda: ask("/gate"))
if option("KEPT") == "refused":
    case("the next request on the same connection")(lambda: ask("/"))
case("a new request")(lambda: get(f"http://{HOST}/"))
case("a new tunnel")(lambda: connect(f"{HOST}:80"))
case("a new tunnel of SOCKS")(lambda: socks(3, socks_name(HOST), 80))

main()
