"""Files of real sandboxes."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import threading
from pathlib import Path

import pytest

from conftest import TOKEN, Daemon
from cubby import AsyncClient, ConflictError, FileChange, InvalidRequestError, NotFoundError, Sandbox


def test_texts_and_bytes(box: Sandbox) -> None:
    info = box.files.write("t/a b+ü?.txt", "héllo", parents=True, mode=0o750)
    assert (info.path, info.name, info.type, info.size, info.mode) == (
        "/workspace/t/a b+ü?.txt",
        "a b+ü?.txt",
        "file",
        6,
        "0750",
    )
    assert info.is_file
    assert box.files.read_text(info.path) == "héllo"
    box.files.write("t/a b+ü?.txt", b"\xff\x00", append=True)
    assert box.files.read(info.path) == b"h\xc3\xa9llo\xff\x00"
    assert box.files.stat(info.path).mode == "0750"
    for content in (b"bytes", "text", io.BytesIO(b"file"), [b"list", b"", b"of"], (c for c in [b"gen", b"erator"])):
        box.files.write("t/kind", content)
    assert box.files.read("t/kind") == b"generator"
    box.files.write("t/empty", b"")
    assert box.files.read("t/empty") == b""


def test_ranges(box: Sandbox) -> None:
    box.files.write("ranges", b"0123456789")
    assert box.files.read("ranges", offset=3, length=4) == b"3456"
    assert box.files.read("ranges", offset=8) == b"89"
    assert box.files.read("ranges", length=2) == b"01"
    assert box.files.read("ranges", offset=5, length=0) == b""
    assert box.files.read("ranges", offset=5, length=100) == b"56789"
    with pytest.raises(InvalidRequestError, match="range"):
        box.files.read("ranges", offset=100)
    with box.files.open("ranges", offset=1) as pieces:
        assert b"".join(pieces) == b"123456789"


def test_tree(box: Sandbox) -> None:
    assert box.files.mkdir("tree/deep").is_dir
    with pytest.raises(ConflictError):
        box.files.mkdir("tree/deep", parents=False)
    box.files.write("tree/deep/f", "1")
    assert [f.name for f in box.files.list("tree")] == ["deep"]
    assert [f.path for f in box.files.list("tree", recursive=True)] == [
        "/workspace/tree/deep",
        "/workspace/tree/deep/f",
    ]
    box.files.move("tree/deep/f", "tree/g")
    box.files.write("tree/h", "2")
    with pytest.raises(ConflictError):
        box.files.move("tree/g", "tree/h")
    box.files.move("tree/g", "tree/h", replace=True)
    assert box.files.read("tree/h") == b"1"
    box.exec("ln -s h tree/link", check=True)
    assert box.files.stat("tree/link").type == "file"
    link = box.files.stat("tree/link", follow=False)
    assert (link.type, link.target) == ("symlink", "h")
    assert box.files.exists("tree/link")
    box.files.remove("tree", recursive=True)
    assert not box.files.exists("tree")
    with pytest.raises(NotFoundError):
        box.files.remove("tree")
    with pytest.raises(NotFoundError):
        box.files.read("tree/h")


def test_files_of_a_sandbox_that_does_not_exist(client_box: Sandbox) -> None:
    with pytest.raises(NotFoundError):
        client_box.files.exists("a")


@pytest.fixture
def client_box(box: Sandbox) -> Sandbox:
    """A sandbox that nobody made."""
    from dataclasses import replace

    return Sandbox(box._transport, replace(box.info, id="sdk-never-made"))


def test_local_files(box: Sandbox, tmp_path: Path) -> None:
    content = os.urandom(1_500_000)
    (tmp_path / "up").write_bytes(content)
    assert box.files.upload(tmp_path / "up", "local/f").size == len(content)
    box.files.download("local/f", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == content
    (tmp_path / "down").write_text("old")
    with pytest.raises(NotFoundError):
        box.files.download("local/missing", tmp_path / "down")
    assert (tmp_path / "down").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["down", "up"]
    with pytest.raises(FileNotFoundError):
        box.files.upload(tmp_path / "missing", "local/f")


def make_tree(root: Path) -> None:
    (root / "d/empty").mkdir(parents=True)
    (root / "d/ü").write_text("x" * 1000)
    (root / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("run.sh")
    (root / ("long" * 40)).write_bytes(b"")
    os.mkfifo(root / "pipe")


def test_directories(box: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    make_tree(source)
    box.files.upload_dir(source, "dirs/x")
    assert box.exec("./dirs/x/link").stdout == "ran\n"
    box.exec("chmod 500 dirs/x/d && mkdir -p dirs/x/more", check=True)
    target = tmp_path / "new/target"
    box.files.download_dir("dirs/x", target)
    assert stat.S_IMODE((target / "d").stat().st_mode) == 0o500
    assert (target / "d/ü").read_text() == "x" * 1000
    assert os.access(target / "run.sh", os.X_OK)
    assert os.readlink(target / "link") == "run.sh"
    assert (target / "more").is_dir()
    assert not (target / "pipe").exists()
    box.files.download_dir("dirs/x", target)  # over what is there
    with box.files.archive("dirs/x", format="zip") as pieces:
        assert b"".join(pieces).startswith(b"PK")
    with pytest.raises(NotADirectoryError):
        box.files.upload_dir(source / "run.sh", "dirs/y")


def test_watch(box: Sandbox) -> None:
    box.files.mkdir("watched")
    with box.files.watch("watched") as changes:
        assert next(changes).op == "ready"
        box.exec("touch watched/new", check=True)
        change = next(c for c in changes if c.op == "create")
        assert isinstance(change, FileChange)
        assert change.path == "/workspace/watched/new"


def test_async_files(daemon: Daemon, box: Sandbox, tmp_path: Path) -> None:
    async def numbers() -> object:
        for i in range(3):
            yield b"%d" % i

    async def scenario() -> None:
        async with AsyncClient(daemon.url, TOKEN) as client:
            files = (await client.sandboxes.get(box.id)).files
            await files.write("async/n", numbers(), parents=True)  # type: ignore[arg-type]
            await files.write("async/f", io.BytesIO(b"f" * 600_000))
            async with files.open("async/f", offset=599_998) as pieces:
                assert b"".join([p async for p in pieces]) == b"ff"
            await files.download_dir("async", tmp_path / "got")
            assert (tmp_path / "got/n").read_bytes() == b"012"
            make_tree(tmp_path / "got")
            await files.upload_dir(tmp_path / "got", "async2")
            await files.upload(tmp_path / "got/n", "async2/m")
            await files.download("async2/m", tmp_path / "m")
            assert (tmp_path / "m").read_bytes() == b"012"
            assert "run.sh" in [f.name for f in await files.list("async2")]

    asyncio.run(scenario())


def test_many_threads_share_a_client(box: Sandbox) -> None:
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for i in range(5):
                box.files.write(f"threads/{n}", str(i), parents=True)
            assert box.exec(["cat", f"threads/{n}"]).stdout == "4"
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []
