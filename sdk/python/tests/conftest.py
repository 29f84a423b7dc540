"""A real daemon for the tests that want one.

CUBBY_TEST_BIN names the program and CUBBY_TEST_IMAGE_DIR the directory with the image base; without them the
repository's own are used. Both must be there: nothing is skipped. The daemon needs root.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cubby import Client, NotFoundError, Sandbox
from registries import ELSEWHERE, Registries
from scripting import scripted

__all__ = ["scripted"]

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "sdk-secret"
# A test waits for what must happen; these bound what never does, on a slow and loaded machine too.
START_LIMIT = 60.0


def free_port() -> int:
    """Find a port below the range that the kernel gives to whoever asks for any."""
    for _ in range(100):
        port = random.randrange(20000, 30000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


class Daemon:
    """A child process `cubby serve` on a data directory of its own."""

    def __init__(self) -> None:
        self.program = Path(os.environ.get("CUBBY_TEST_BIN") or ROOT / "bin/cubby").resolve()
        self.images = Path(os.environ.get("CUBBY_TEST_IMAGE_DIR") or ROOT / ".cache/images").resolve()
        if not self.program.exists() or not (self.images / "names.json").exists():
            raise FileNotFoundError(
                f"run make build image, or set CUBBY_TEST_BIN ({self.program}) and CUBBY_TEST_IMAGE_DIR ({self.images})"
            )
        self.data = Path(tempfile.mkdtemp(prefix="cubby-sdk-", dir="/var/tmp"))
        self.log = self.data.with_suffix(".log")
        self.port = free_port()
        self.registries = Registries()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and return when it answers. A port that somebody took in between is changed for another once."""
        for attempt in range(3):
            if self._try():
                return
            if "address already in use" not in self.log.read_text() or attempt == 2:
                raise RuntimeError(f"the daemon does not answer; its log:\n{self.log.read_text()}")
            self.port = free_port()

    def _try(self) -> bool:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUBBY_", "SANDBOXD_"))}
        environment["CUBBY_TOKENS"] = f"sdk:{TOKEN}"
        environment |= self.registries.environment
        environment["CUBBY_DISK_RESERVE"] = "1"  # the machine may be full
        # Git servers and package indexes of the tests are on this machine.
        environment["CUBBY_EGRESS_ALLOW"] = f"127.0.0.1,{ELSEWHERE},localhost"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    self.program,
                    "serve",
                    "--listen",
                    f"127.0.0.1:{self.port}",
                    "--preview-listen",
                    "127.0.0.1:0",
                    "--data-dir",
                    self.data,
                    "--image-dir",
                    self.images,
                    "--disk-pool",
                    "1",
                    "--container-pool",
                    "0",
                    "--journal-per-exec",
                    "16MiB",
                    "--journal-per-sandbox",
                    "32MiB",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        deadline = time.monotonic() + START_LIMIT
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(self.url + "/healthz", trust_env=False).status_code == 200:
                    return True
            time.sleep(0.05)
        self.kill()
        return False

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would. Sandboxes go on."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """End it in order."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self.process = None

    def clean(self) -> None:
        """Destroy what the tests left, and remove everything of the daemon from this machine."""
        self.registries.close()
        if self.process is None:
            self.start()
        with Client(self.url, TOKEN) as client:
            for box in client.sandboxes.list():
                with contextlib.suppress(NotFoundError):
                    box.destroy()
        self.stop()
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for mount in reversed([m for m in mounts if m.startswith(f"{self.data}/")]):
            subprocess.run(["umount", "-l", mount], check=True)
        shutil.rmtree(self.data)
        self.log.unlink()


@contextlib.contextmanager
def running_daemon() -> Iterator[Daemon]:
    """Run a daemon, and tell its log when the body fails."""
    daemon = Daemon()
    try:
        daemon.start()
        yield daemon
    except BaseException:
        print(f"the daemon's log:\n{daemon.log.read_text()}")
        raise
    finally:
        daemon.clean()


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """A daemon that tests share."""
    with running_daemon() as d:
        yield d


@pytest.fixture(scope="session")
def client(daemon: Daemon) -> Iterator[Client]:
    """A client of the shared daemon."""
    with Client(daemon.url, TOKEN) as c:
        yield c


@pytest.fixture(scope="session")
def shared_box(client: Client) -> Iterator[Sandbox]:
    """A container that tests share; they keep to directories and names of their own."""
    with client.sandboxes.create(isolation="container", exec_timeout=120) as box:
        yield box


@pytest.fixture
def box(shared_box: Sandbox) -> Sandbox:
    """The shared container."""
    return shared_box
