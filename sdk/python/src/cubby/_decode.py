"""Makes dataclasses of the API's JSON.

Fields that a class does not know are ignored, so that an older SDK works with a newer daemon. A field that is missing
or null gets its default. What has the wrong type is an InternalError: the other side is not Cubby.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar, cast

from .errors import InternalError

T = TypeVar("T")
Converter = Callable[[Any], Any]


def malformed(what: str) -> InternalError:
    """Return the error for an answer that is not the API's."""
    return InternalError(
        f"the answer cannot be read: {what}",
        hint="check CUBBY_URL, and `cubby version` on both sides",
    )


def decode(cls: type[T], data: object) -> T:
    """Make an object of the dataclass cls."""
    if not isinstance(data, Mapping):
        raise malformed(f"{cls.__name__} is not an object")
    values: dict[str, Any] = {}
    for name, key, convert, required in _plan(cast("Any", cls)):
        value = data.get(key)
        if value is None:
            if required:
                raise malformed(f"{cls.__name__}.{key} is missing")
            continue
        try:
            values[name] = convert(value)
        except (TypeError, ValueError, OverflowError) as e:
            raise malformed(f"{cls.__name__}.{key}: {e}") from e
    return cls(**values)


def decode_list(cls: type[T], data: object, key: str) -> list[T]:
    """Make a list of the dataclass cls out of ``{key: […]}``."""
    items = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(items, list):
        raise malformed(f"{key} is not a list")
    return [decode(cls, item) for item in items]


@functools.cache
def _plan(cls: type[Any]) -> list[tuple[str, str, Converter, bool]]:
    """Return of every field its name, its key in JSON, how it is read and whether it must be there."""
    hints = typing.get_type_hints(cls)
    plan: list[tuple[str, str, Converter, bool]] = []
    for field in dataclasses.fields(cls):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        plan.append((field.name, field.metadata.get("json", field.name), _converter(hints[field.name]), required))
    return plan


def _converter(hint: Any) -> Converter:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        # The unions of the models are X | None, and None never comes here; "any" is a union that is left as it is.
        kinds = [a for a in args if a is not type(None)]
        return _converter(kinds[0]) if len(kinds) == 1 else _same
    if origin is typing.Literal:  # of which a newer daemon may have more
        return _SCALARS[str]
    if origin is list:
        item = _converter(args[0])
        return lambda v: [item(x) for x in _expect(list, v)]
    if origin is dict:
        value = _converter(args[1])
        return lambda v: {str(k): value(x) for k, x in _expect(dict, v).items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return functools.partial(decode, hint)
    return _SCALARS.get(hint, _same)


def _same(value: Any) -> Any:
    return value


def _expect(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise TypeError(f"{type(value).__name__} instead of {kind.__name__}")
    return value


def _int(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return _expect(int, value)


def _float(value: Any) -> float:
    return value if isinstance(value, float) else float(_expect(int, value))


_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)")


def parse_time(value: Any) -> datetime:
    """Read an RFC 3339 time; what is finer than microseconds is cut."""
    match = _TIME.fullmatch(_expect(str, value))
    if match is None:
        raise ValueError(f"{value!r} is not a time")
    day, clock, fraction, zone = match.groups()
    stamp = datetime.fromisoformat(f"{day}T{clock}").replace(microsecond=int((fraction or "0").ljust(6, "0")[:6]))
    if zone in "Zz":
        return stamp.replace(tzinfo=timezone.utc)
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    return stamp.replace(tzinfo=timezone(-offset if zone[0] == "-" else offset))


_SCALARS: dict[Any, Converter] = {
    str: functools.partial(_expect, str),
    bool: functools.partial(_expect, bool),
    int: _int,
    float: _float,
    datetime: parse_time,
}
