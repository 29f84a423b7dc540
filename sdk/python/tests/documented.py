"""A daemon of the word of api/openapi.json."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).resolve().parents[3] / "api/openapi.json").read_text("utf-8"))
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
# Objects whose keys are the user's.
FREE = {"env", "labels", "metadata", "dependencies"}
LAST_EVENTS = {
    "stream-exec": 'event: exit\ndata: {"seq":1,"status":"done","exit_code":0}',
    "list-events": "event: end\ndata: {}",
    "list-task-events": 'id: 7\nevent: done\ndata: {"id":"t","status":"succeeded"}',
    "watch-files": 'event: change\ndata: {"path":"/workspace","op":"ready"}',
}


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema or "anyOf" in schema:
        # The first of several is the one that is not null.
        schema = schema["anyOf"][0] if "anyOf" in schema else SCHEMAS[schema["$ref"].rsplit("/", 1)[-1]]
    return schema


def _fields(schema: dict[str, Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in _resolved(schema).get("properties", {}).items():
        if name == "$schema":
            continue
        inner = _resolved(value)
        below = set() if name in FREE else _fields(inner.get("items", inner), f"{prefix}{name}.")
        found |= below or {prefix + name}
    return found


def words_of(schema: dict[str, Any], prefix: str = "") -> list[tuple[str, set[str]]]:
    """Return the fields that have to be one of some words, as ``a.b``, with the words."""
    found: list[tuple[str, set[str]]] = []
    for name, value in _resolved(schema).get("properties", {}).items():
        inner = _resolved(value)
        inner = _resolved(inner.get("items") or inner)
        if "enum" in inner:
            found.append((prefix + name, set(inner["enum"]) - {None}))
        elif name not in FREE:
            found += words_of(inner, f"{prefix}{name}.")
    return found


def _sent(value: Any, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, dict):
            found |= {prefix[:-1]} if prefix else set()
            continue
        for name, inner in one.items():
            found |= {prefix + name} if name in FREE else _sent(inner, f"{prefix}{name}.")
    return found


def _example(schema: dict[str, Any], name: str = "") -> Any:
    schema = _resolved(schema)
    if "properties" in schema:
        return {n: _example(s, n) for n, s in schema["properties"].items()}
    if "enum" in schema:
        return next((word for word in ("done", "succeeded") if word in schema["enum"]), schema["enum"][0])
    if schema.get("format") == "date-time":
        return "2026-01-02T03:04:05Z"
    kind = schema.get("type") or _resolved(schema.get("oneOf", [{}])[0]).get("type")
    if kind is None:  # what came of an operation
        return {"commits": [], "installed": [], "path": "p", "files": [], "commit": "c"}
    kinds = [kind] if isinstance(kind, str) else kind
    if "array" in kinds:
        return [_example(schema["items"])]
    values: dict[str, Any] = {"string": "text", "integer": 1, "number": 1, "boolean": True, "object": {}}
    return 0 if name == "exit_code" else values[kinds[0]]


class Operation:
    """One operation of the API, with what it takes: parameters, and fields of its JSON body as ``a.b``."""

    def __init__(self, method: str, path: str, spec: dict[str, Any]) -> None:
        self.id: str = spec["operationId"]
        self.method = method.upper()
        self.path = re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path))
        self.literal = len(re.sub(r"\{[^}]+\}", "", path))
        self.headers = {p["name"] for p in spec.get("parameters", []) if p["in"] == "header"}
        self.takes = {p["name"] for p in spec.get("parameters", []) if p["in"] != "path"}
        body = spec.get("requestBody", {}).get("content", {}).get("application/json", {})
        self.takes |= _fields(body.get("schema", {}))
        parameters = {p["name"]: p["schema"] for p in spec.get("parameters", [])}
        self.words = words_of({"properties": parameters}) + words_of(body.get("schema", {}))
        self.responses = [(int(c), r.get("content", {})) for c, r in spec["responses"].items() if c[0] in "12"]

    def answer(self, again: bool) -> httpx.Response:
        """Give an example of what it gives; of a list the last page when it is asked again."""
        contents = [(t, c) for _, content in self.responses for t, c in content.items()]
        kind, content = next(((t, c) for t, c in contents if t != "text/event-stream"), ("", {}))
        if kind != "application/json":
            return httpx.Response(self.responses[0][0] if not kind else 200, content=b"text" if kind else b"")
        value = _example(content["schema"])
        if again:
            value = {k: v for k, v in value.items() if k not in ("next_cursor", "next_before")}
        return httpx.Response(self.responses[0][0], json=value)


OPERATIONS = [Operation(m, path, spec) for path, methods in DOCUMENT["paths"].items() for m, spec in methods.items()]


class Documented:
    """Answers with an example of what each operation gives, and notes what it got."""

    def __init__(self) -> None:
        self.got: defaultdict[str, set[str]] = defaultdict(set)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        sent = {name for name in request.headers if name in ("idempotency-key", "last-event-id", "range")}
        body = json.loads(request.content) if request.headers.get("content-type") == "application/json" else {}
        found = self.note(request.method, str(request.url), sent, body)
        if request.headers.get("accept") == "text/event-stream":
            kind = {"Content-Type": "text/event-stream"}
            return httpx.Response(200, headers=kind, content=f"{LAST_EVENTS[found.id]}\n\n")
        return found.answer(bool({"cursor", "before"} & request.url.params.keys()))

    def note(self, method: str, url: str, headers: set[str], body: Any) -> Operation:
        """Find the operation of a request, which must send nothing that it does not take."""
        parts = urlsplit(url)
        fitting = [o for o in OPERATIONS if o.method == method and o.path.fullmatch(parts.path)]
        assert fitting, f"no operation is {method} {parts.path}"
        found = max(fitting, key=lambda o: o.literal)
        sent = set(parse_qs(parts.query)) | _sent(body) | {h for h in found.headers if h.lower() in headers}
        assert sent <= found.takes, f"{found.id} does not take {sent - found.takes}"
        self.got[found.id] |= sent
        return found
