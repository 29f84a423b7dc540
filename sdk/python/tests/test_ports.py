"""The ports of a sandbox and their previews, against a real daemon."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx

from cubby import Client, Sandbox

SERVE = (
    "echo hello > index.html; python3 -m http.server 3000 >/dev/null 2>&1 & "
    "until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 3000))' 2>/dev/null; do sleep 0.1; done"
)


def seen(url: str, headers: dict[str, str] | None = None) -> httpx.Response:
    """Open a preview on this machine, as a browser finds names below localhost."""
    at = urlsplit(url)
    address = at._replace(netloc=f"127.0.0.1:{at.port}").geturl()
    return httpx.get(address, headers={"Host": at.netloc, **(headers or {})})


def test_ports_and_previews(client: Client) -> None:
    with client.sandboxes.create(isolation="container", ports=[3000], visibility="public") as box:
        assert isinstance(box, Sandbox)
        assert [(p.port, p.listening, p.declared) for p in box.ports()] == [(3000, False, True)]
        assert box.exec(SERVE).exit_code == 0
        assert box.port(3000).program.startswith("python3")
        url = box.url(3000)
        assert url == f"http://{box.get_host(3000)}/"
        assert seen(url).text == "hello\n"
        box.update(visibility="private")
        assert seen(url).status_code == 401
        link = box.link(3000, expires_in=60)
        assert link.expires_at is not None
        token = urlsplit(link.url).query.removeprefix("cubby_preview=")
        assert seen(url, {"X-Cubby-Preview-Token": token}).text == "hello\n"
        assert seen(box.url(3000)).status_code == 303
        box.end_links()
        assert seen(url, {"X-Cubby-Preview-Token": token}).status_code == 401
