"""Build a web app from a prompt: a coding agent works in a sandbox, and the app has a live URL.

Run the daemon (make demo), build the image with the agents (cubby image build dev), then:

    pip install cubby-sdk
    ANTHROPIC_API_KEY=… python examples/app_builder.py "a to-do list with dark mode" --agent claude

Say what to change when it asks, in the same conversation; an empty line ends it.
"""

import argparse
import os
import shlex

from cubby import Client, Sandbox, TaskEvent

PORT = 3000
KEYS = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"]
HOUSE_RULES = f"""
Work in the present directory. Make a web app that needs no build step unless it has to have one.
When it is ready, start it in the background on port {PORT}, so that it goes on when you have finished, and check
that it answers. Do not ask questions.
"""


def show(event: TaskEvent) -> None:
    """Print what the agent says and does."""
    if event.type == "message":
        print(f"\n{event.data['text']}")
    elif event.type == "tool" and event.data["status"] == "running":
        print(f"  · {event.data['name']} {event.data['path']}")
    elif event.type == "diff":
        lines = event.data.get("patch", "").splitlines()
        added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
        removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
        print(f"  {event.data['status']:9} {event.data['path']} +{added} -{removed}")
    elif event.type == "build" and not event.data["build_ok"]:
        print(f"  the build failed: {event.data['build_error_message']}")


def listens(box: Sandbox) -> bool:
    """Whether the app answers at its port."""
    return any(port.port == PORT and port.listening for port in box.ports())


def build(box: Sandbox, prompt: str, args: argparse.Namespace, resume: str | None) -> str:
    """Have the agent do one thing, and return the id of the task."""
    agent = {"command": shlex.split(args.command), "protocol": "json-lines"} if args.command else {"agent": args.agent}
    task = box.tasks.run(
        prompt + HOUSE_RULES,
        model=args.model,
        cwd="app",
        env={key: os.environ[key] for key in KEYS if key in os.environ},
        resume=resume,
        on_event=show,
        **agent,
    )
    took, files = task.duration_ms / 1000, len(task.files_changed)
    print(f"\n{task.status} in {took:.0f} s, {files} files changed, {task.tokens.total} tokens")
    if task.status != "succeeded":
        print(task.error_message)
    return task.id


def main() -> None:
    """Read the arguments and build."""
    parser = argparse.ArgumentParser(description="Build a web app from a prompt.")
    parser.add_argument("prompt")
    parser.add_argument("--agent", default="opencode", help="opencode, claude, codex or gemini")
    parser.add_argument("--model", help="as the agent names it")
    parser.add_argument("--image", default="dev", help="an image that has the agent")
    parser.add_argument("--command", help="another agent: its command line, which prints JSON Lines")
    args = parser.parse_args()

    with Client() as client:
        box = client.sandboxes.create(image=args.image, ports=[PORT], visibility="public")
        print(f"Building in the sandbox {box.id}")
        prompt, resume = args.prompt, None
        while prompt:
            resume = build(box, prompt, args, None if args.command else resume)
            if listens(box):
                print(f"Open {box.url(PORT)}")
            else:
                print(f"Nothing listens on port {PORT}.")
            try:
                prompt = input("\nWhat shall be changed? ").strip()
            except EOFError:
                prompt = ""
        print(f"\nThe app sleeps when nobody looks, and wakes for the next visitor. To remove it: cubby rm {box.id}")


if __name__ == "__main__":
    main()
