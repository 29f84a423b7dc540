"""Short texts for what can be long."""

from __future__ import annotations

import dataclasses
import reprlib
import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

_LONGEST_COMMAND = 100
_LONGEST_TAIL = 2000
_TAIL_LINES = 20


class _Values(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 60
        self.maxlist = self.maxtuple = self.maxdict = 3
        self.maxlevel = 2

    def repr_datetime(self, value: datetime, level: int) -> str:
        return value.isoformat()


_values = _Values()


class Short:
    """Gives a dataclass a repr that stays on a line: fields that say something, with long values cut."""

    _shown: ClassVar[Sequence[str]] = ()
    """The fields and properties to show; none means all fields that have not their default."""

    def __repr__(self) -> str:
        shown = [f"{name}={_values.repr(value)}" for name, value in self._telling()]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _telling(self) -> list[tuple[str, Any]]:
        if self._shown:
            pairs = [(name, getattr(self, name)) for name in self._shown]
            return [(name, value) for name, value in pairs if value not in (None, "", [], {})]
        found = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type] # it is one
            value = getattr(self, field.name)
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            if value != default:
                found.append((field.name, value))
        return found


def command_line(cmd: str | Sequence[str]) -> str:
    """Return a command on one line, cut where it is long."""
    line = " ".join((cmd if isinstance(cmd, str) else shlex.join(cmd)).split())
    return line if len(line) <= _LONGEST_COMMAND else line[: _LONGEST_COMMAND - 1] + "…"


def tail(text: str) -> str:
    """Return the last lines of an output; "…" stands for those before."""
    text = text.strip()
    end = "\n".join(text.splitlines()[-_TAIL_LINES:])[-_LONGEST_TAIL:]
    return end if end == text or not text else "…" + end
