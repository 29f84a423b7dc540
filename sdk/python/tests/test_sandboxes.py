"""The life of sandboxes, and who may see them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from conftest import Daemon
from cubby import (
    Client,
    ConflictError,
    InUseError,
    InvalidRequestError,
    Limits,
    Network,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
    WrongStateError,
)


def test_life(client: Client) -> None:
    with client.sandboxes.create(
        "sdk-life",
        isolation="container",
        limits=Limits(memory_bytes=256 << 20, pids=100),
        env={"A": "1"},
        labels={"team": "red"},
        metadata={"note": "n"},
        network=Network("none"),
        idle_policy="always_on",
        idle_timeout=timedelta(minutes=5),
        exec_timeout=60,
    ) as box:
        assert (box.id, box.status) == ("sdk-life", "running")
        info = box.info
        assert (info.isolation, info.limits.memory_bytes, info.limits.pids) == ("container", 256 << 20, 100)
        assert (info.labels, info.metadata, info.network.mode) == ({"team": "red"}, {"note": "n"}, "none")
        assert (info.idle_policy, info.idle_timeout_seconds, info.exec_timeout_seconds) == ("always_on", 300, 60)
        assert info.created_at is not None
        assert info.created_at.utcoffset() == timedelta()
        assert box.exec("echo $A").stdout == "1\n"

        with pytest.raises(ConflictError):
            client.sandboxes.create("sdk-life", isolation="container")
        assert [b.id for b in client.sandboxes.list(labels={"team": "red"}, status="running")] == ["sdk-life"]
        assert box.update(labels={"team": "blue"}, exec_timeout=30).labels == {"team": "blue"}
        assert box.info.exec_timeout_seconds == 30
        assert box.stats().memory_bytes > 0

        box.files.write("kept", "text")
        assert box.stop(grace=5).status == "stopped"
        assert box.files.read_text("kept") == "text"
        with pytest.raises(WrongStateError) as caught:
            box.exec("true")
        assert caught.value.hint
        assert box.start().status == "running"
        assert box.exec("cat kept").stdout == "text"
        assert client.sandboxes.get("sdk-life").refresh().status == "running"
    with pytest.raises(NotFoundError):
        box.exec("true")
    with pytest.raises(NotFoundError):
        box.destroy()


def test_sleep_and_wake(client: Client) -> None:
    with client.sandboxes.create(isolation="gvisor", auto_wake="idle") as box:
        assert box.run_code("x = 41").success
        sleeper = box.start_exec("echo begun; sleep 1000", timeout=0)
        with pytest.raises(InUseError) as caught:
            box.sleep()
        assert caught.value.hint
        assert box.sleep(force=True).status == "sleeping"
        assert [b.id for b in client.sandboxes.list(status="sleeping")] == [box.id]
        assert box.run_code("x + 1").text == "42"
        assert (box.refresh().status, box.info.restore_incomplete) == ("running", False)
        sleeper.cancel()
        assert box.sleep().status == "sleeping"
        assert box.wake().status == "running"
    with client.sandboxes.create(isolation="container") as box:
        assert box.sleep().status == "stopped"
        assert "not put to sleep" in box.info.reason
        assert box.exec("echo up").stdout == "up\n"
        assert box.update(auto_wake="never").auto_wake == "never"
        box.sleep()
        with pytest.raises(WrongStateError):
            box.exec("true")
        assert box.wake().status == "running"


def test_kept_disk(client: Client) -> None:
    with client.sandboxes.create("sdk-kept", isolation="container") as box:
        box.files.write("left", "behind")
        box.destroy(keep_disk=True)
    with client.sandboxes.create("sdk-kept", isolation="container") as box:
        assert box.files.read_text("left") == "behind"
        assert box.purge() > 0


def test_pages_of_a_list(client: Client) -> None:
    boxes = [client.sandboxes.create(isolation="container", labels={"paged": "yes"}) for _ in range(3)]
    found = [b.id for b in client.sandboxes.list(labels={"paged": "yes"}, page_size=1)]
    assert found == [b.id for b in reversed(boxes)]
    for box in boxes:
        box.destroy()


def test_idempotency_key(client: Client) -> None:
    first = client.sandboxes.create(isolation="container", idempotency_key="sdk-key")
    with first:
        assert client.sandboxes.create(isolation="container", idempotency_key="sdk-key").id == first.id


def test_a_wrong_token_sees_nothing(daemon: Daemon, client: Client) -> None:
    with client.sandboxes.create(isolation="container") as box:
        for token in ("wrong", ""):
            with Client(daemon.url, token) as nobody, pytest.raises(UnauthorizedError) as caught:
                nobody.sandboxes.get(box.id)
            assert caught.value.code == "unauthorized"
            assert caught.value.request_id


def test_ids_cannot_reach_other_resources(client: Client) -> None:
    for bad in ("", ".", ".."):
        with pytest.raises(InvalidRequestError):
            client.sandboxes.get(bad)
    for bad in ("../images", "a/b", "%2e%2e", "a?b=c"):
        with pytest.raises((NotFoundError, InvalidRequestError)):
            client.sandboxes.get(bad)


def test_environment_names_the_daemon(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBBY_URL", daemon.url + "/")
    monkeypatch.setenv("CUBBY_TOKEN", "sdk-secret\n")
    # A proxy cannot reach this machine's loopback.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with Client() as client:
        assert client.url == daemon.url
        client.health()
        assert client.ready() == []
        assert "base" in [i.name for i in client.images()]


def test_nobody_answers() -> None:
    with Client("http://127.0.0.1:9", "t") as client, pytest.raises(UnreachableError) as caught:
        client.health()
    assert caught.value.retryable
    assert "cubby serve" in caught.value.hint
