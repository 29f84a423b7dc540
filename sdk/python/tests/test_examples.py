"""The examples of the pages run as they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, TOKEN, Daemon
from cubby import Client
from test_ports import seen

SDK = Path(__file__).resolve().parents[1]
PAGES = [SDK / "README.md", SDK.parents[1] / "docs/sdk-python.md"]


def examples() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for number, text in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S), 1):
            found.append((f"{page.name}-{number}", text))
    return found


@pytest.mark.parametrize(("name", "text"), examples())
def test_example(name: str, text: str, daemon: Daemon) -> None:
    run(name, text, daemon)


def test_preview(daemon: Daemon, client: Client) -> None:
    printed = run("preview.py", (ROOT / "examples/preview.py").read_text(), daemon)
    url = re.search(r"^Open (http://\S+)$", printed, re.M)
    box_id = re.search(r"cubby rm (\S+)$", printed, re.M)
    assert url is not None, printed
    assert box_id is not None, printed
    with client.sandboxes.get(box_id[1]) as box:
        assert "<h1>Hello from a sandbox</h1>" in seen(url[1]).text
        # What the last line but one says.
        box.sleep()
        assert "<h1>Hello from a sandbox</h1>" in seen(url[1]).text


AGENT = """sh -c 'echo "I make a page."
echo "<h1>Hello from an agent</h1>" > index.html
python3 -m http.server 3000 > /tmp/log 2>&1 < /dev/null &
until curl -sf localhost:3000 > /dev/null; do sleep 0.1; done' agent"""


def test_app_builder(daemon: Daemon, client: Client) -> None:
    text = (ROOT / "examples/app_builder.py").read_text()
    printed = run("app_builder.py", text, daemon, "a page", "--image", "base", "--command", AGENT)
    url = re.search(r"^Open (http://\S+)$", printed, re.M)
    box_id = re.search(r"cubby rm (\S+)$", printed, re.M)
    assert url is not None, printed
    assert box_id is not None, printed
    assert "I make a page." in printed
    assert "added     index.html +1 -0" in printed
    with client.sandboxes.get(box_id[1]):
        assert "<h1>Hello from an agent</h1>" in seen(url[1]).text


def run(name: str, text: str, daemon: Daemon, *arguments: str) -> str:
    """Run an example, which must succeed without a warning, and return what it prints."""
    environment = {**os.environ, "CUBBY_URL": daemon.url, "CUBBY_TOKEN": TOKEN}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"{name}:\n{text}\n{done.stdout}{done.stderr}"
    assert done.stderr == ""
    return done.stdout
