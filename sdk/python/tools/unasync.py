"""Makes src/cubby/_sync out of src/cubby/_async.

    python3 tools/unasync.py           write what differs
    python3 tools/unasync.py --check   write nothing, fail when something differs

It replaces words and nothing else, so what is written once must be written for both. What differs in more than words
is in _backend.py, which exists twice and is left alone. It needs nothing but Python 3.10.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "cubby"
SOURCE, TARGET = PACKAGE / "_async", PACKAGE / "_sync"
BY_HAND = {"_backend.py"}

HEADER = "# Made from ../_async/{name} by tools/unasync.py; change that one.\n"

WORDS = [
    (r"\bawait ", ""),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\b_async\b", "_sync"),
    (r"\b__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\baclosing\b", "closing"),
    (r"\benter_async_context\b", "enter_context"),
    (r"\b(?:a)(close|iter_bytes|read|next|iter)\(", r"\1("),
]


def convert(text: str, name: str) -> str:
    """Return the blocking twin of a module's source."""
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    return HEADER.format(name=name) + text


def main() -> int:
    """Run; returns the exit code."""
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        print(__doc__, file=sys.stderr)
        return 2
    wanted = {p.name: convert(p.read_text("utf-8"), p.name) for p in SOURCE.glob("*.py") if p.name not in BY_HAND}
    present = {p.name: p.read_text("utf-8") for p in TARGET.glob("*.py") if p.name not in BY_HAND}
    differing = sorted(n for n in wanted.keys() | present.keys() if wanted.get(n) != present.get(n))
    for name in differing:
        if check:
            print(f"src/cubby/_sync/{name} is not what tools/unasync.py makes of src/cubby/_async", file=sys.stderr)
        elif name in wanted:
            (TARGET / name).write_text(wanted[name], "utf-8")
        else:
            (TARGET / name).unlink()
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
