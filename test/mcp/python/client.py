"""Drives MCP with the official SDK for Python.

Usage: client.py MODE VERSION SESSION TRANSPORT. MODE is the SDK's (auto or
legacy), VERSION of the protocol is what has to come of it, and TRANSPORT is
JSON: {"url", "headers"} or {"command", "args", "env"}. SESSION has a kernel for
Python. It prints ok at its end.
"""

import contextlib
import json
import sys

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

mode, version, session, target = sys.argv[1:]
to = json.loads(target)


class Caller:
    def __init__(self, client):
        self.client = client

    async def __call__(self, name, progress=None, **arguments):
        result = await self.client.call_tool(name, {"session_id": session, **arguments}, 300, progress)
        return {"failed": bool(result.is_error), **(result.structured_content or {})}


@contextlib.asynccontextmanager
async def connect():
    async with contextlib.AsyncExitStack() as stack:
        if "url" in to:
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=to["headers"], timeout=600))
            transport = streamable_http_client(to["url"], http_client=http)
        else:
            transport = StdioServerParameters(**to)
        yield Caller(await stack.enter_async_context(Client(transport, mode=mode)))


async def main():
    async with connect() as call:
        assert call.client.protocol_version == version, call.client.protocol_version
        assert len((await call.client.list_tools()).tools) == 18
        assert len((await call.client.list_resource_templates()).resource_templates) == 2

        out = await call("execute_code", code="x = 20", timeout=120)
        assert out["success"], out
        out = await call("execute_code", code="x + 1")
        assert out["result"]["text/plain"] == "21", out

        # Progress comes while the call runs: it is what ends it.
        heard = []

        async def progress(done, total, message):
            assert done > 0
            if message == "working" and not heard:
                heard.append(message)
                await call("write_file", path="go", content="")

        command = "rm -f go; echo working; while [ ! -e go ]; do sleep 0.05; done; rm go; echo done"
        out = await call("execute_terminal", progress, command=command, timeout=300)
        assert out["stdout"] == "working\ndone\n", out

        # A call that is given up ends the code and keeps what it had.
        async with anyio.create_task_group() as group:
            code = "import time\nx = 5\nopen('begun', 'w').close()\ntime.sleep(600)"
            group.start_soon(lambda: call("execute_code", code=code, timeout=300))
            while (await call("read_file", path="begun"))["failed"]:
                await anyio.sleep(0.05)
            group.cancel_scope.cancel()
        out = await call("execute_code", code="x", timeout=120)
        assert out["result"]["text/plain"] == "5", out

        # What one client begins another one resumes where it was left.
        command = "echo first; while [ ! -e next ]; do sleep 0.05; done; rm next; echo second"
        number = (await call("start_command", command=command))["command_id"]
        at, text = 0, ""
        while not text:
            out = await call("get_output", command_id=number, offset=at, wait=5)
            at, text = out["next_offset"], out["stdout"]
        assert text == "first\n", out

    async with connect() as call:
        await call("write_file", path="next", content="")
        rest, more = "", True
        while more:
            out = await call("get_output", command_id=number, offset=at, wait=5)
            rest, at = rest + out["stdout"], out["next_offset"]
            more = out["status"] == "running" or out.get("more")
        assert rest == "second\n" and out["exit_code"] == 0, (rest, out)
        await call("execute_terminal", command="rm begun")
        refused = await call("execute_terminal", session_id="none", command="true")
        assert refused["failed"] and refused["error"], refused


anyio.run(main)
print("ok")
