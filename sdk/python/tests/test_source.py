"""The blocking client is what the tool makes of the other, and everything public has words about it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import cubby

SDK = Path(__file__).resolve().parents[1]


def test_the_blocking_client_is_generated() -> None:
    subprocess.run([sys.executable, SDK / "tools/unasync.py", "--check"], check=True)


def test_every_public_name_is_documented() -> None:
    bare: list[str] = []
    for name in cubby.__all__:
        value = getattr(cubby, name)
        if not inspect.isclass(value):
            continue
        if not inspect.getdoc(value):
            bare.append(name)
        for member, function in inspect.getmembers(value):
            if not member.startswith("_") and (callable(function) or isinstance(function, property)):
                doc = inspect.getdoc(function)
                if not doc and member not in ("add_note", "with_traceback"):
                    bare.append(f"{name}.{member}")
    assert bare == []


def test_the_two_clients_have_the_same_methods() -> None:
    for name in cubby.__all__:
        if not name.startswith("Async"):
            continue
        ours = {m.removeprefix("a") if m == "aclose" else m for m in dir(getattr(cubby, name)) if m[0] != "_"}
        assert ours == {m for m in dir(getattr(cubby, name.removeprefix("Async"))) if m[0] != "_"}


def test_the_version_is_that_of_the_package() -> None:
    assert version("cubby-sdk") == cubby.__version__
