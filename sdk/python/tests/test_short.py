"""Reprs stay short, however much there is."""

from __future__ import annotations

import dataclasses
import typing
from datetime import datetime, timezone
from typing import Any

import pytest

import cubby

MODELS = [v for n in cubby.__all__ if dataclasses.is_dataclass(v := getattr(cubby, n)) and isinstance(v, type)]
LONG: dict[Any, Any] = {str: "x" * 10_000, bytes: b"x" * 10_000, int: 10**15, float: 1e300 / 3, bool: True}


def _filled(hint: Any) -> Any:
    if hint in LONG:
        return LONG[hint]
    if hint is datetime:
        return datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _make(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return [_filled(args[0])] * 1000
    if origin is dict:
        return {f"key{n}": "v" * 1000 for n in range(1000)}
    if origin is typing.Literal:
        return args[0]
    if args:  # a union
        return _filled(args[0])
    return {"anything": "x" * 10_000}


def _make(kind: type[Any]) -> Any:
    hints = typing.get_type_hints(kind)
    return kind(**{f.name: _filled(hints[f.name]) for f in dataclasses.fields(kind)})


@pytest.mark.parametrize("kind", MODELS)
def test_a_full_one_fits_in_a_few_lines(kind: type[Any]) -> None:
    assert len(repr(_make(kind))) < 700


def test_they_say_what_matters() -> None:
    result = cubby.ExecResult(
        3, "done", "echo hi", cwd="/workspace", stdout_bytes=b"hi\n", exit_code=0, reason="exited"
    )
    assert repr(result) == (
        r"ExecResult(seq=3, status='done', cmd='echo hi', exit_code=0, reason='exited', stdout='hi\n')"
    )
    assert repr(cubby.SandboxInfo("b", "running", image="base", isolation="gvisor", labels={"a": "b"})) == (
        "SandboxInfo(id='b', status='running', image='base', isolation='gvisor')"
    )
    assert repr(cubby.Network("none")) == "Network(mode='none')"
