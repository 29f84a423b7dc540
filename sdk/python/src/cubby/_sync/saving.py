# Made from ../_async/saving.py by tools/unasync.py; change that one.
"""Writes downloads to local files."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

from ._backend import in_thread


def save(pieces: Iterator[bytes], target: Path) -> None:
    """Write pieces to a local file. Nothing appears there before all of them have come."""
    part = target.parent / f".cubby-{secrets.token_hex(8)}"
    try:
        with in_thread(part.open, "xb") as file:
            for piece in pieces:
                in_thread(file.write, piece)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
