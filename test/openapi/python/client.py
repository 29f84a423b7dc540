"""Drives a daemon through the client that openapi-python-client makes of api/openapi.json.

The daemon has no isolation and no kernels.
"""

import sys

from cubby_api import Client
from cubby_api.api.execs import exec_, stream_exec
from cubby_api.api.history import list_events
from cubby_api.api.host import list_images
from cubby_api.api.sandboxes import create_sandbox, destroy_sandbox, get_sandbox, list_sandboxes
from cubby_api.models import ExecInput, Execution, Problem, SandboxInput

client = Client(base_url=sys.argv[1])

made = create_sandbox.sync_detailed(client=client, body=SandboxInput.from_dict({"labels": {"made": "by python"}}))
assert made.status_code == 201, made
box = made.parsed
assert box.isolation == "container", box

run = exec_.sync(box.id, client=client, body=ExecInput.from_dict({"cmd": ["sh", "-c", "echo out; exit 3"]}))
assert (run.exit_code, run.stdout) == (3, "out\n"), run
followed = stream_exec.sync_detailed(box.id, run.seq, client=client)
assert followed.status_code == 200 and b"event: exit" in followed.content, followed

assert box.id in [b.id for b in list_sandboxes.sync(client=client).sandboxes]
assert list_events.sync(box.id, client=client).events[0].kind == "sandbox.created"
assert "base" in [image.name for image in list_images.sync(client=client).images]

missing = get_sandbox.sync_detailed("nothing", client=client)
assert missing.status_code == 404 and isinstance(missing.parsed, Problem), missing
assert missing.parsed.error.code == "not_found", missing

# What a cell answers that has neither a value nor an exception.
quiet = {
    "seq": 1, "status": "done", "success": True, "kernel": "python", "stdout": "", "stderr": "", "execution_count": 1,
    "result": None, "outputs": [], "error": None, "duration_ms": 1, "created_at": "2026-01-01T00:00:00Z",
}
cell = Execution.from_dict(quiet)
assert cell.error is None and cell.result is None, cell

gone = destroy_sandbox.sync_detailed(box.id, client=client)
assert gone.status_code == 204, gone
print("python: ok")
