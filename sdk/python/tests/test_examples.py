"""The examples of the pages run as they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import TOKEN, Daemon

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
    environment = {**os.environ, "CUBBY_URL": daemon.url, "CUBBY_TOKEN": TOKEN}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"{name}:\n{text}\n{done.stdout}{done.stderr}"
    assert done.stderr == ""
