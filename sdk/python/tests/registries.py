"""Package indexes on this machine: a simple repository of wheels, and a registry of npm.

They have stand-ins for packages that documented examples use, which answer without a network.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# An address of this machine that NO_PROXY of a sandbox does not name.
ELSEWHERE = "127.0.0.2"

AIOHTTP = """
import asyncio

class ClientSession:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass

    async def get(self, url):
        await asyncio.sleep(0.01)
        self.url = url
        return self

    async def text(self):
        return "text of " + self.url
"""

AXIOS = """
exports.get = (url) => new Promise((resolve) => setTimeout(() => resolve({ data: 'data of ' + url }), 10));
"""


def wheel(name: str, version: str, source: str) -> bytes:
    """Make a package of one module."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return out.getvalue()


def tarball(name: str, version: str, source: str) -> bytes:
    """Make a package of npm with one file."""
    files = {
        "package/package.json": json.dumps({"name": name, "version": version, "main": "index.js"}),
        "package/index.js": source,
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text.encode()), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


class Registries:
    """Serves both in a thread, until it is closed."""

    def __init__(self) -> None:
        pages: dict[str, tuple[str, bytes]] = {}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, body = pages.get(self.path.split("?")[0], ("", b""))
                self.send_response(200 if kind else 404)
                self.send_header("Content-Type", kind or "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer((ELSEWHERE, 0), Handler)
        self.url = f"http://{ELSEWHERE}:{self._server.server_address[1]}"
        for name, version, source in (
            ("aiohttp", "3.99.0", AIOHTTP),
            ("demo", "1.0", "x = 1"),
            ("demo", "2.0", "x = 2"),
        ):
            file = f"{name}-{version}-py3-none-any.whl"
            data = wheel(name, version, source)
            link = f'<a href="/wheels/{file}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>\n'
            kind, listed = pages.get(f"/simple/{name}/", ("text/html", b"<!DOCTYPE html>\n"))
            pages[f"/simple/{name}/"] = kind, listed + link.encode()
            pages[f"/wheels/{file}"] = "application/octet-stream", data
        data = tarball("axios", "1.99.0", AXIOS)
        dist = {
            "tarball": f"{self.url}/npm/axios/-/axios-1.99.0.tgz",
            "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode(),
        }
        release = {"name": "axios", "version": "1.99.0", "main": "index.js", "dist": dist}
        document = {"name": "axios", "dist-tags": {"latest": "1.99.0"}, "versions": {"1.99.0": release}}
        pages["/npm/axios"] = "application/json", json.dumps(document).encode()
        pages["/npm/axios/-/axios-1.99.0.tgz"] = "application/octet-stream", data
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """What points a daemon at them."""
        return {"CUBBY_PIP_INDEX_URL": f"{self.url}/simple", "CUBBY_NPM_REGISTRY": f"{self.url}/npm"}

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
