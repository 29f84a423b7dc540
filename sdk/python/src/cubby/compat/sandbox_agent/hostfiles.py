"""Files of the machine on which the manager runs."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from pathlib import Path

WORKSPACE = "/workspace"


def in_workspace(path: str) -> str:
    """Return a path of a sandbox as an absolute one."""
    return posixpath.normpath(posixpath.join(WORKSPACE, path))


def allowed_source(source: str, allowed: Sequence[Path]) -> Path:
    """Return where a local path leads to, if that is below one of the directories; else raise PermissionError."""
    path = Path(source).resolve()
    if not any(path.is_relative_to(directory) for directory in allowed):
        raise PermissionError(
            f"Import from '{source}' denied — path is outside allowed directories. "
            "Configure IMPORT_ALLOWED_DIRS to allow additional paths."
        )
    if not path.exists():
        raise FileNotFoundError(f"File or directory not found: {source}")
    return path


def destination_of(path: Path, destination: str) -> str:
    """Return where a local file or directory goes; a file whose destination ends in a slash goes below it."""
    if not destination:
        destination = path.name
    elif destination.endswith("/") and not path.is_dir():
        destination += path.name
    return in_workspace(destination)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of the files of a tree."""
    if path.is_file():
        return path.stat().st_size
    return sum(f.lstat().st_size for f in path.rglob("*") if f.is_file() and not f.is_symlink())
