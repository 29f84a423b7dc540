"""Calls back with what is printed."""

from __future__ import annotations

import codecs
from collections.abc import Callable

from ..models import Output
from ._backend import tell


class AsyncRelay:
    """Turns pieces of output into text, which may end within a character, and calls back with it."""

    def __init__(
        self, on_stdout: Callable[[str], object] | None = None, on_stderr: Callable[[str], object] | None = None
    ) -> None:
        self._callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        self._texts = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in self._callbacks}

    async def take(self, piece: Output) -> None:
        """Take a piece and call back with the text that it completes."""
        if text := self._texts[piece.stream].decode(piece.data):
            await tell(self._callbacks[piece.stream], text)

    async def finish(self) -> None:
        """Call back with what was not completed."""
        for name, callback in self._callbacks.items():
            if text := self._texts[name].decode(b"", True):
                await tell(callback, text)
