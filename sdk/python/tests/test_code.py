"""Code in real kernels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import TOKEN, Daemon
from cubby import (
    AsyncClient,
    Client,
    CodeEnd,
    CodeFailedError,
    ConflictError,
    CubbyError,
    FileToImport,
    InstallFailedError,
    InvalidRequestError,
    NotFoundError,
    Output,
    Package,
    RichOutput,
    Sandbox,
)

PLOT = "import matplotlib.pyplot as plt; plt.plot([1, 4, 9]); print('drawn')"


@pytest.fixture(scope="module", params=["container", "gvisor"])
def code_box(request: pytest.FixtureRequest, client: Client) -> Iterator[Sandbox]:
    """A sandbox of each kind, whose default kernels these tests share."""
    with client.sandboxes.create(isolation=request.param, exec_timeout=120) as made:
        yield made


def test_a_kernel_keeps_its_state(code_box: Sandbox) -> None:
    first = code_box.run_code("import sys; x = 6; print('out'); print('err', file=sys.stderr)")
    assert (first.status, first.success, first.stdout, first.stderr) == ("done", True, "out\n", "err\n")
    assert (first.result, first.text, first.outputs, first.error, first.kernel) == (None, None, [], None, "python")
    second = code_box.run_code("x * 7")
    assert (second.text, second.result) == ("42", {"text/plain": "42"})
    assert second.execution_count == first.execution_count + 1
    assert second.raise_for_error() is second
    assert code_box.cell(second.seq).get().text == "42"
    assert code_box.execs(after_seq=second.seq - 1)[0].kind == "code.run"


def test_an_exception_is_told(code_box: Sandbox) -> None:
    got = code_box.run_code("1 / 0")
    assert not got.success
    assert got.error is not None
    assert (got.error.type, got.error.message) == ("ZeroDivisionError", "division by zero")
    assert "\x1b" not in got.error.traceback
    assert "1 / 0" in got.error.traceback
    with pytest.raises(CodeFailedError, match="ZeroDivisionError") as caught:
        code_box.run_code("1 / 0", check=True)
    assert caught.value.execution.error is not None


def test_figures_and_tables(code_box: Sandbox) -> None:
    plot = code_box.run_code(PLOT)
    assert plot.stdout == "drawn\n"
    assert plot.png is not None
    assert plot.png.startswith(b"\x89PNG\r\n")
    assert "image/png" in plot.outputs[0]._repr_mimebundle_()[0]
    table = code_box.run_code("import pandas as pd; pd.DataFrame({'x': [1, 2]})")
    assert table.html is not None
    assert "<table" in table.html
    assert "x" in (table.text or "")
    shown = code_box.run_code(
        "from IPython.display import SVG, display; display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')); 5"
    )
    assert (shown.svg or "").startswith("<svg")
    assert shown.text == "5"


def test_a_time_limit_leaves_the_state(code_box: Sandbox) -> None:
    code_box.run_code("kept = 1", check=True)
    got = code_box.run_code("while True: pass", timeout=1)
    assert (got.reason, got.success) == ("timeout", False)
    assert got.error is not None
    assert got.error.type == "TimeoutError"
    assert code_box.run_code("kept").text == "1"


def test_a_stream_comes_as_it_is_printed(code_box: Sandbox) -> None:
    cell = code_box.start_code("print('one'); print(input('more? ')); display({'a': 1}); 3", stdin=True)
    with cell.stream() as stream:
        first = [next(stream), next(stream)]  # what it printed and what it asks, in either order
        assert [c.text for c in first if isinstance(c, Output)] == ["one\n"]
        assert [(c.kind, c.prompt) for c in first if isinstance(c, RichOutput)] == [("input", "more? ")]
        cell.write_stdin("two\n")
        rest = list(stream)
    assert "".join(c.text for c in rest if isinstance(c, Output)) == "two\n"
    assert [c.kind for c in rest if isinstance(c, RichOutput)] == ["display", "result"]
    assert isinstance(rest[-1], CodeEnd)
    assert rest[-1].execution.text == "3"
    assert stream.execution == rest[-1].execution
    assert cell.output(stream="stdout") == b"one\ntwo\n"


def test_callbacks(code_box: Sandbox) -> None:
    out: list[str] = []
    err: list[str] = []
    shown: list[RichOutput] = []
    code = "import sys\nfor i in range(3): print('é', i)\nprint('e', file=sys.stderr)\n'x'"
    got = code_box.run_code(code, on_stdout=out.append, on_stderr=err.append, on_output=shown.append)
    assert ("".join(out), "".join(err)) == ("é 0\né 1\né 2\n", "e\n")
    assert [(s.kind, s.display.text if s.display else None) for s in shown] == [("result", "'x'")]
    assert got.text == "'x'"


def test_code_that_is_not_waited_for_can_be_canceled(code_box: Sandbox) -> None:
    running = code_box.run_code("import time; print('go'); time.sleep(600)", wait=False)
    assert not running.finished
    behind = code_box.start_code("'next'")
    with code_box.cell(running.seq).stream() as stream:
        next(stream)
    canceled = code_box.cell(running.seq).cancel()
    assert canceled.seq == running.seq
    assert code_box.cell(running.seq).wait(60).reason == "killed"
    assert behind.wait(60).text == "'next'"


def test_kernels_are_made_and_end(code_box: Sandbox) -> None:
    kernel = code_box.kernels.create("python", "second", env={"A": "b"}, cwd="/tmp")
    try:
        assert (kernel.info.language, kernel.info.status) == ("python", "idle")
        with pytest.raises(ConflictError):
            code_box.kernels.create("python", "second")
        assert kernel.run("import os; y = 1; os.environ['A'], os.getcwd()").text == "('b', '/tmp')"
        assert "NameError" in str(code_box.run_code("y").error)
        assert {"second", "python"} <= {k.name for k in code_box.kernels.list()}
        assert {"python", "node"} <= {k.language for k in code_box.kernels.available()}
        assert code_box.kernels.get("second").refresh().execution_count == 1
        cell = kernel.start(
            "import time\ntry: print('go'); time.sleep(600)\nexcept KeyboardInterrupt: print('stopped')"
        )
        with cell.stream() as stream:
            first = next(stream)
            assert isinstance(first, Output)
            assert kernel.refresh().status == "busy"
            kernel.interrupt()
            assert "stopped\n" in "".join(c.text for c in [first, *stream] if isinstance(c, Output))
        ended = cell.get()
        assert not ended.success
        assert ended.reason == "killed"
        before = kernel.info.pid
        assert kernel.restart().pid != before
        assert "NameError" in str(kernel.run("y").error)
    finally:
        kernel.delete()
    with pytest.raises(NotFoundError):
        code_box.kernels.get("second")


def test_other_languages(code_box: Sandbox) -> None:
    got = code_box.run_code("const a = [1, 2]; console.log('hi'); a.map((x) => x * 2)", "node")
    assert got.stdout == "hi\n"
    assert "4" in (got.text or "")
    assert code_box.run_code("const a = 3; a", "javascript").text == "3"
    missing = code_box.run_code("1", "r")
    assert missing.reason == "not_started"
    assert "image r" in missing.message
    with pytest.raises(InvalidRequestError):
        code_box.run_code("1", kernel="../x")


def test_packages_are_installed(code_box: Sandbox) -> None:
    assert code_box.install({"demo": "1.0"}) == [Package("demo", "1.0")]
    assert code_box.run_code("import demo; demo.x").text == "1"
    process = code_box.start_install(["axios"], runtime="node")
    assert b"".join(c.data for c in process.stream() if isinstance(c, Output))
    assert process.wait().ok
    with pytest.raises(InstallFailedError) as caught:
        code_box.install(["missing-package"])
    assert "missing-package" in str(caught.value)
    for name in ("foo; rm -rf /", "-r", ""):
        with pytest.raises(InvalidRequestError):
            code_box.install([name])


def test_a_sandbox_with_dependencies(client: Client) -> None:
    with client.sandboxes.create(isolation="container", dependencies={"demo": ""}) as made:
        assert made.info.dependencies == {"demo": ""}
        assert made.run_code("import demo; demo.x").text == "2"
    with pytest.raises(CubbyError, match="missing-package"):
        client.sandboxes.create("sdk-dependencies", isolation="container", dependencies={"missing-package": ""})
    assert client.sandboxes.get("sdk-dependencies").status == "failed"


def test_files_go_from_one_sandbox_to_another(code_box: Sandbox, client: Client, tmp_path: Path) -> None:
    code_box.files.write("out/a.txt", "content", parents=True)
    done = code_box.export_files("out/a.txt", "/workspace/out", "missing", "../etc")
    assert [f.success for f in done] == [True, True, False, False]
    assert (done[0].path, done[0].size, done[0].session_id) == ("/workspace/out/a.txt", 7, code_box.id)
    assert done[2].error == "File or directory not found in container"
    assert done[3].error.startswith("Path outside /workspace")
    assert {f.path for f in code_box.exports()} == {"/workspace/out", "/workspace/out/a.txt"}
    with client.sandboxes.create(isolation="container") as other:
        taken = other.import_files(
            FileToImport(sandbox=code_box.id, path="/workspace/out/a.txt"),
            FileToImport("copy", sandbox=code_box.id, path="/workspace/out"),
            FileToImport("t", "text é"),
            FileToImport("b", b"\xff\x00"),
            FileToImport(sandbox=code_box.id, path="/workspace/secret"),
            FileToImport(source="/etc/passwd"),
        )
        assert [f.success for f in taken] == [True, True, True, True, False, False]
        assert other.files.read_text("a.txt") == other.files.read_text("copy/a.txt") == "content"
        assert other.files.read("t").decode() == "text é"
        assert other.files.read("b") == b"\xff\x00"
        assert "not exported" in taken[4].error
        assert "denied" in taken[5].error
    code_box.download_export("out/a.txt", tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "content"
    with code_box.open_export("/workspace/out") as pieces:
        assert b"".join(pieces).startswith(b"PK")
    code_box.download_export("out", tmp_path / "out.tar.gz", format="tar.gz")
    assert (tmp_path / "out.tar.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_code_of_the_asynchronous_client(daemon: Daemon) -> None:
    async def scenario() -> None:
        async with (
            AsyncClient(daemon.url, TOKEN) as client,
            await client.sandboxes.create(isolation="container") as box,
        ):
            heard: list[str] = []
            first, second = await asyncio.gather(
                box.run_code("x = 1; print('one')", on_stdout=heard.append), box.run_code("2 + 2", "node")
            )
            assert (first.success, second.text, "".join(heard)) == (True, "4", "one\n")
            kernel = await box.kernels.get("python")
            assert (await kernel.run("x")).text == "1"
            async with (await box.start_code("3")).stream() as stream:
                kinds = [type(chunk) async for chunk in stream]
            assert kinds == [RichOutput, CodeEnd]

    asyncio.run(scenario())
