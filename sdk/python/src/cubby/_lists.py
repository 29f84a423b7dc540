"""Reads arguments that may be a list or its one item.

A bare string is one item. Taken for a list it would be its letters, each of which is the name of something.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

from .serviceresults import ServiceSpec


def items(value: str | Iterable[str] | None) -> list[str] | None:
    """Read texts; None stays None."""
    if value is None:
        return None
    return [value] if isinstance(value, str) else list(value)


def port_list(value: int | Iterable[int] | None) -> list[int] | None:
    """Read ports; None stays None."""
    if value is None:
        return None
    return [value] if isinstance(value, int) else list(value)


def service_list(value: ServiceSpec | Iterable[ServiceSpec] | None) -> list[dict[str, Any]] | None:
    """Read services; None stays None."""
    if value is None:
        return None
    specs = [value] if isinstance(value, ServiceSpec) else list(value)
    return [{k: v for k, v in asdict(s).items() if v is not None} for s in specs]


def wanted(dependencies: str | Mapping[str, str] | Iterable[str]) -> dict[str, str]:
    """Read packages to install: a name, names, or names with versions, of which an empty one is any."""
    if isinstance(dependencies, Mapping):
        return {name: version or "" for name, version in dependencies.items()}
    return dict.fromkeys(items(dependencies) or (), "")


def directories(value: str | PathLike[str] | Iterable[str | PathLike[str]]) -> list[Path]:
    """Read paths of directories."""
    return [Path(d) for d in ([value] if isinstance(value, (str, PathLike)) else value)]


def entries(value: Mapping[str, str] | Iterable[Mapping[str, str]]) -> list[Mapping[str, Any]]:
    """Read objects."""
    return [value] if isinstance(value, Mapping) else list(value)
