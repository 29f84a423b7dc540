"""Talk to cubby's agent over the LangGraph SDK: a person decides about its shell commands, its files are saved here.

Run the daemon with a model (OPENAI_API_KEY=… cubby serve --agent-model openai/gpt-5-mini), then:

    pip install -r examples/langgraph/requirements.txt
    python examples/langgraph/approval.py "List the ten largest files below /usr in sizes.csv."

CUBBY_URL and CUBBY_TOKEN say where the daemon is.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
from langgraph_sdk import get_sync_client

URL = os.environ.get("CUBBY_URL", "http://127.0.0.1:9090")
TOKEN = os.environ.get("CUBBY_TOKEN")
HEADERS = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
MODES = ["messages-tuple", "custom"]
CONFIG = {"configurable": {"interrupt_on": {"execute_terminal": True}}}

client = get_sync_client(url=f"{URL}/agent", api_key=None, headers=HEADERS)


def text_of(content: str | list[dict[str, Any]]) -> str:
    """Return the text of a message."""
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def run(thread: str, **payload: Any) -> list[dict[str, Any]]:
    """Do one run of the thread, print what happens, and return the files that were exported."""
    exported, last = [], None

    def show(source: str, text: str) -> None:
        nonlocal last
        if last not in (None, source):  # a message, a call, its output
            print()
        print(text, end="", flush=True)
        last = source

    for event in client.runs.stream(thread, "agent", stream_mode=MODES, config=CONFIG, **payload):
        if event.event == "error":
            sys.exit(f"{event.data['error']}: {event.data['message']}")
        if event.event == "custom" and event.data["type"] == "tool_output":
            show(event.data["tool_call_id"], event.data["text"])
        if event.event != "messages":
            continue
        message = event.data[0]  # a whole result of a tool, or a piece of what the model says
        if message["type"] == "tool":
            exported += (message.get("artifact") or {}).get("files", [])
            continue
        if message["content"]:
            show(message["id"], text_of(message["content"]))
        for call in message.get("tool_call_chunks", []):
            name = f"> {call['name']} " if call.get("name") else ""  # the first piece has it
            show(f"call {call['id']}" if name else last, name + (call.get("args") or ""))
    print()
    return exported


def say(thread: str, content: str) -> list[dict[str, Any]]:
    """Send a message, and ask the person as long as the agent waits for decisions."""
    exported = run(thread, input={"messages": [{"role": "user", "content": content}]})
    while interrupts := [i for task in client.threads.get_state(thread)["tasks"] for i in task["interrupts"]]:
        decisions = []
        for request in interrupts[0]["value"]["action_requests"]:
            answer = input(f"May it use {request['name']}: {json.dumps(request['args'])}? [y/n] ")
            if answer.startswith("y"):
                decisions.append({"type": "approve"})
            else:
                decisions.append({"type": "reject", "message": "The user does not want this."})
        exported += run(thread, command={"resume": {"decisions": decisions}})
    return exported


def main() -> None:
    """Have one task done, and save what was made."""
    task = " ".join(sys.argv[1:]) or "List the ten largest files below /usr in sizes.csv."
    thread = client.threads.create()["thread_id"]
    try:
        exported = say(thread, task) + say(thread, "Export the files that you made.")
        for file in exported:
            data = httpx.get(file["download_url"], headers=HEADERS).raise_for_status().content
            Path(Path(file["path"]).name).write_bytes(data)
            print(f"[saved {Path(file['path']).name}]")
    finally:
        client.threads.delete(thread)  # with its sandbox


if __name__ == "__main__":
    main()
