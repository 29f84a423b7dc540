"""The services of a sandbox, against a real daemon."""

from __future__ import annotations

import time

import pytest

from cubby import Client, NotFoundError, Sandbox, Service, ServiceSpec

SERVE = "echo up; exec python3 -m http.server $PORT --bind 127.0.0.1"


def until(box: Sandbox, name: str, state: str) -> Service:
    """Wait for the state of a service."""
    for _ in range(200):
        service = box.services.get(name)
        if service.state == state:
            return service
        time.sleep(0.1)
    raise AssertionError(f"{service} is not {state}")


def test_services_run_and_are_changed(client: Client) -> None:
    web = ServiceSpec("web", SERVE, port=3000, env={"SECRET": "x"})
    with client.sandboxes.create(isolation="container", visibility="public", services=web) as box:
        assert box.info.services == [ServiceSpec("web", SERVE, port=3000, restart="always")]
        ready = until(box, "web", "ready")
        assert ready.pid > 0
        assert ready.restarts == 0
        assert ready.started_at is not None
        assert box.services.list() == [ready]
        assert box.url(3000) == f"http://{box.get_host(3000)}/"
        process = box.services.process("web")
        assert process is not None
        assert process.get().stdout == "up\n"
        assert box.execs() == []
        assert [x.seq for x in box.services.runs("web")] == [ready.exec]
        assert box.services.stop("web").state == "stopped"
        assert box.services.start("web").exec == ready.exec + 1
        assert box.services.restart("web").exec == ready.exec + 2
        box.update(services=[ServiceSpec("once", "exit 4", restart="never")])
        assert until(box, "once", "stopped").exit_code == 4
        with pytest.raises(NotFoundError):
            box.services.start("web")
