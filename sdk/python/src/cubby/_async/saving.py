"""Writes downloads to local files."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from ._backend import in_thread


async def save(pieces: AsyncIterator[bytes], target: Path) -> None:
    """Write pieces to a local file. Nothing appears there before all of them have come."""
    part = target.parent / f".cubby-{secrets.token_hex(8)}"
    try:
        with await in_thread(part.open, "xb") as file:
            async for piece in pieces:
                await in_thread(file.write, piece)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
