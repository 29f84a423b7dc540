"""`cubby mcp` as a program of Python starts it: by the documented configuration, with a real daemon behind it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, TOKEN, Daemon
from cubby import Client, NotFoundError

# Of a server that says nothing any more.
LIMIT = 300.0


class Server:
    """Speaks JSON-RPC with a child, one request after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.asked = 0

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def tell(self, method: str) -> None:
        self._send({"method": method})

    def ask(self, method: str, **params: Any) -> Any:
        self.asked += 1
        self._send({"id": self.asked, "method": method, "params": params})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)  # there is nothing else on standard output
            if message.get("id") == self.asked:
                return message["result"]
        raise AssertionError(f"no answer to {method}")

    def call(self, tool: str, **arguments: Any) -> Any:
        result = self.ask("tools/call", name=tool, arguments=arguments)
        assert not result.get("isError"), result
        return result["structuredContent"]


@contextlib.contextmanager
def configured(daemon: Daemon, state: Path) -> Iterator[Server]:
    """Start the server that the first configuration of the page names."""
    text = re.findall(r"^```json\n(.*?)^```", (ROOT / "docs/mcp.md").read_text(), re.M | re.S)[0]
    entry = json.loads(text)["mcpServers"]["cubby"]
    assert entry["command"] == "cubby"
    assert set(entry["env"]) == {"CUBBY_URL", "CUBBY_TOKEN"}
    environment = {"PATH": os.environ["PATH"], "HOME": str(state), "CUBBY_URL": daemon.url, "CUBBY_TOKEN": TOKEN}
    with subprocess.Popen(
        [str(daemon.program), *entry["args"]],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        watchdog = threading.Timer(LIMIT, process.kill)
        watchdog.start()
        try:
            yield Server(process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            watchdog.cancel()
            watchdog.join()
            process.kill()


def test_the_documented_configuration(daemon: Daemon, client: Client, tmp_path: Path) -> None:
    with configured(daemon, tmp_path) as server:
        server.ask(
            "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"}
        )
        server.tell("notifications/initialized")
        names = {tool["name"] for tool in server.ask("tools/list")["tools"]}
        assert names >= {
            "create_session",
            "execute_code",
            "execute_terminal",
            "import_files",
            "export_files",
            "stop_session",
        }

        sid = server.call("create_session", language="python", dependencies={})["session_id"]
        assert client.sandboxes.get(sid).status == "running"
        files = [{"file_content": "NCwy", "encoding": "base64", "destination": "in.csv"}]
        assert server.call("import_files", session_id=sid, files=files)["success"]
        ran = server.call(
            "execute_code", session_id=sid, code="a, b = map(int, open('in.csv').read().split(',')); a * b"
        )
        assert (ran["success"], ran["result"]["text/plain"]) == (True, "8")
        printed = server.call("execute_terminal", session_id=sid, command="wc -c < in.csv; echo bad >&2; exit 3")
        assert (printed["exit_code"], printed["stdout"].strip(), printed["stderr"]) == (3, "3", "bad\n")
        exported = server.call("export_files", session_id=sid, files=[{"source": "in.csv"}])
        assert exported["success"]
        assert exported["files"][0]["download_url"]
        assert server.call("stop_session", session_id=sid)["success"]
        with pytest.raises(NotFoundError):
            client.sandboxes.get(sid).exec("true")
