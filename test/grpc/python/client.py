"""Does what agentbox's documentation shows, with Google's Python client, and prints the number of each snippet that did.

Usage: client.py HOST:PORT DIRECTORY PACKAGE, where the directory has the stubs that protoc made, and the package is one
that the daemon's index has. A failed check ends it with a traceback.
"""

import sys

import grpc

address, stubs, package = sys.argv[1:]
sys.path.insert(0, stubs)

from sandbox.v1 import sandbox_pb2 as pb  # noqa: E402
from sandbox.v1 import sandbox_pb2_grpc  # noqa: E402

channel = grpc.insecure_channel(address)
stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
LIMIT = 180  # seconds for any call


def call(method, request):
    return getattr(stub, method)(request, timeout=LIMIT)


def same(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def done(*snippets):
    for snippet in snippets:
        print(snippet, flush=True)


# 2.2, 2.11: a session with the default hosts
session = call("CreateSession", pb.CreateSessionRequest()).session
sid = session.session_id
assert sid and session.container_id and "pypi.org" in session.allowed_hosts, session
same(len(session.allowed_hosts), 9)
same(session.status, "running")
done("2.2")
same(list(call("CreateSession", pb.CreateSessionRequest(session_id=sid, allowed_hosts=["example.com"])).session.allowed_hosts), list(session.allowed_hosts))


def other(**kwargs):
    """A session that is destroyed when what it is for was looked at."""
    return call("CreateSession", pb.CreateSessionRequest(**kwargs)).session


def run(command, session_id=sid, **kwargs):
    return call("Exec", pb.ExecRequest(session_id=session_id, command=command, **kwargs))


def destroy(session_id):
    return call("DestroySession", pb.DestroySessionRequest(session_id=session_id)).success


out = run("python3 -c 'print(1+1)'", timeout=30)
same((out.stdout, out.exit_code), ("2\n", 0))
done("2.3")

assert call("WriteFile", pb.WriteFileRequest(session_id=sid, path="script.py", content="print('hello')", mode="w")).success
same(run("python3 script.py").stdout, "hello\n")
done("2.4")

out = call("PipInstall", pb.PipInstallRequest(session_id=sid, packages=[package]))
assert out.exit_code == 0 and not out.timed_out, out
same(run(f"python3 -c 'import {package}'").exit_code, 0)
refused = call("PipInstall", pb.PipInstallRequest(session_id=sid, packages=["foo; rm -rf /"]))
same((refused.exit_code, refused.stderr), (-1, "Invalid package specifier: foo; rm -rf /"))
done("2.5")

gone = other().session_id
same((destroy(gone), destroy(gone)), (True, False))
assert run("true", session_id=gone).stderr.startswith("Session not found: destroyed ")
done("2.6")

assert run("python3 --version").stdout.startswith("Python 3.")
code = "print('Hello from gRPC!')"
assert call("WriteFile", pb.WriteFileRequest(session_id=sid, path="test.py", content=code, mode="w")).success
same(call("ReadFile", pb.ReadFileRequest(session_id=sid, path="test.py")).content, code)
same(run("python3 test.py").stdout, "Hello from gRPC!\n")
assert run("uname -r").stdout.strip()
assert any(s.session_id == sid for s in call("ListSessions", pb.ListSessionsRequest()).sessions)
done("2.7", "2.8")

# 2.9 is the SDK, whose calls these are; what it has beside is ExecStream.
events = []
for e in stub.ExecStream(pb.ExecStreamRequest(session_id=sid, command="echo live; until test -e go; do sleep 0.1; done; exit 3"), timeout=LIMIT):
    events.append((e.type, e.data, e.exit_code))
    if e.data == "live\n":  # the command goes on only when this was read
        run("touch go")
same(events, [("stdout", "live\n", 0), ("exit", "", 3)])
done("2.9")

named = other(allowed_hosts=["example.com"])
same(list(named.allowed_hosts), ["example.com"])
destroy(named.session_id)
done("2.10")

default = other(allowed_hosts=[])
same(list(default.allowed_hosts), list(session.allowed_hosts))
destroy(default.session_id)
done("2.11")

alone = other(allowed_hosts=["localhost"])
out = run("curl -sS -o /dev/null -w '%{http_code}' http://example.com; curl -sS https://example.com", session_id=alone.session_id)
assert out.stdout == "403" and "403" in out.stderr and out.exit_code != 0, out
destroy(alone.session_id)
done("2.12")

same(run("echo hello").stdout, "hello\n")
out = run("echo error >&2")
same((out.stderr, out.exit_code), ("error\n", 0))
same(run("exit 42").exit_code, 42)
same(run("pwd", workdir="/tmp").stdout, "/tmp\n")
out = run("echo part; sleep 100", timeout=3)
same((out.exit_code, out.timed_out, out.stdout, out.stderr), (-1, True, "part\n", "Command timed out"))
done("2.13")

for content, mode in (("line1\n", "w"), ("line2\n", "a")):
    assert call("WriteFile", pb.WriteFileRequest(session_id=sid, path="lines", content=content, mode=mode)).success
same(call("ReadFile", pb.ReadFileRequest(session_id=sid, path="lines")).content, "line1\nline2\n")
done("2.14")

missing = call("ReadFile", pb.ReadFileRequest(session_id=sid, path="missing"))
assert not missing.success and missing.error, missing
done("2.15")

same(run("touch /workspace/test && echo ok").stdout, "ok\n")
done("2.16")

try:
    call("GetSession", pb.GetSessionRequest(session_id="unknown"))
    raise AssertionError("an unknown session was found")
except grpc.RpcError as err:
    same((err.code(), err.details()), (grpc.StatusCode.NOT_FOUND, "Session not found"))
done("2.17")

same(destroy(sid), True)
channel.close()
