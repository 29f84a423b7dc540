"""Calls a daemon's gRPC service with Google's Python client.

Usage: client.py HOST:PORT DIRECTORY, where the directory has the stubs that protoc made. A failed check ends it with a
traceback.
"""

import sys

import grpc

address, stubs = sys.argv[1:]
sys.path.insert(0, stubs)

from sandbox.v1 import sandbox_pb2 as pb  # noqa: E402
from sandbox.v1 import sandbox_pb2_grpc  # noqa: E402

channel = grpc.insecure_channel(address)
stub = sandbox_pb2_grpc.SandboxServiceStub(channel)


def same(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


session = stub.CreateSession(pb.CreateSessionRequest()).session
sid = session.session_id
assert sid and session.container_id and "pypi.org" in session.allowed_hosts, session
same(len(session.allowed_hosts), 8)
same(list(stub.CreateSession(pb.CreateSessionRequest(allowed_hosts=["example.com"])).session.allowed_hosts), ["example.com"])
same(len(stub.CreateSession(pb.CreateSessionRequest(allowed_hosts=[])).session.allowed_hosts), 8)


def run(command, **kwargs):
    return stub.Exec(pb.ExecRequest(session_id=sid, command=command, **kwargs))


same(run("python3 -c 'print(1+1)'", timeout=30).stdout, "2\n")
same(run("echo hello").stdout, "hello\n")
out = run("echo error >&2")
same((out.stderr, out.exit_code), ("error\n", 0))
same(run("exit 42").exit_code, 42)
same(run("pwd", workdir="/tmp").stdout, "/tmp\n")
same(run("touch test && echo ok").stdout, "ok\n")
assert run("python3 --version").stdout.startswith("Python 3.")
assert run("uname -r").stdout.strip()

code = "print('Hello from gRPC!')"
assert stub.WriteFile(pb.WriteFileRequest(session_id=sid, path="test.py", content=code, mode="w")).success
same(stub.ReadFile(pb.ReadFileRequest(session_id=sid, path="test.py")).content, code)
same(run("python3 test.py").stdout, "Hello from gRPC!\n")
for content, mode in (("line1\n", "w"), ("line2\n", "a")):
    assert stub.WriteFile(pb.WriteFileRequest(session_id=sid, path="lines", content=content, mode=mode)).success
same(stub.ReadFile(pb.ReadFileRequest(session_id=sid, path="lines")).content, "line1\nline2\n")
missing = stub.ReadFile(pb.ReadFileRequest(session_id=sid, path="missing"))
assert not missing.success and missing.error, missing

events = [(e.type, e.data, e.exit_code) for e in stub.ExecStream(pb.ExecStreamRequest(session_id=sid, command="echo live; exit 3"))]
same(events, [("stdout", "live\n", 0), ("exit", "", 3)])

refused = stub.PipInstall(pb.PipInstallRequest(session_id=sid, packages=["foo; rm -rf /"]))
same((refused.exit_code, refused.stderr), (-1, "Invalid package specifier: foo; rm -rf /"))

try:
    stub.GetSession(pb.GetSessionRequest(session_id="unknown"))
    raise AssertionError("an unknown session was found")
except grpc.RpcError as err:
    same((err.code(), err.details()), (grpc.StatusCode.NOT_FOUND, "Session not found"))

assert any(s.session_id == sid for s in stub.ListSessions(pb.ListSessionsRequest()).sessions)
same(stub.DestroySession(pb.DestroySessionRequest(session_id=sid)).success, True)
same(stub.DestroySession(pb.DestroySessionRequest(session_id=sid)).success, False)
channel.close()
print("ok")
