//go:build root

package walls_test

import (
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/client"
)

// secretReader tries, as the sandbox's user, to read a variable of root's processes in
// every way that there is: it prints the ways that got it.
const secretReader = `
import ctypes, os, subprocess, sys
secret, pid = b"s3cr3t-of-" + b"roots", int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
def way(name, read):
    try:
        got = read()
    except Exception as e:
        got = b""
    if got and secret in got: print(name)
def readfile(path): return lambda: open(path, "rb").read(1 << 20)
for name in ("environ", "cmdline", "stat", "status", "mem", "fd/3", "cwd/../proc/self/environ"):
    way(name, readfile(f"/proc/{pid}/{name}"))
    way("thread " + name, readfile(f"/proc/{pid}/task/{pid}/{name}"))
def memory():
    out = b""
    for line in open(f"/proc/{pid}/maps"):
        lo, hi = (int(x, 16) for x in line.split()[0].split("-"))
        if "stack" in line or "heap" in line:
            buf = ctypes.create_string_buffer(hi - lo)
            local, remote = (ctypes.c_size_t * 2)(ctypes.addressof(buf), hi - lo), (ctypes.c_size_t * 2)(lo, hi - lo)
            if libc.process_vm_readv(pid, local, 1, remote, 1, 0) > 0: out += buf.raw
    return out
way("process_vm_readv", memory)
for op, name in ((16, "ptrace attach"), (0x4206, "ptrace seize")):
    if libc.ptrace(op, pid, 0, 0) == 0: print(name)
fd = libc.syscall(434, pid, 0)
if fd >= 0:
    for n in range(4):
        if libc.syscall(438, fd, n, 0) >= 0: print("pidfd_getfd")
for tool in (["unshare", "-Ur"], ["unshare", "-Urpfm", "--mount-proc"], ["setpriv", "--no-new-privs"]):
    way(" ".join(tool), lambda: subprocess.run(tool + ["cat", f"/proc/{pid}/environ"], capture_output=True).stdout)
print("tried")
`

// What root's commands have in their environment, as GIT_TOKEN while a task is pushed,
// the sandbox's user does not read.
func TestTheUserReadsNoEnvironmentOfRoots(t *testing.T) {
	sandboxesWith(t, client.CreateOptions{}, func(t *testing.T, c *client.Client, id string) {
		if _, err := c.Files(id).Write(t.Context(), "/workspace/read.py", strings.NewReader(secretReader), client.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		x, err := c.Exec(t.Context(), id, client.ExecOptions{
			Shell: `sleep 1000 3< /proc/self/environ > /dev/null 2>&1 & echo $!`, User: "root", Env: map[string]string{"SECRET": "s3cr3t-of-roots"},
		})
		if err != nil {
			t.Fatal(err)
		}
		pid := strings.TrimSpace(x.Stdout)
		for user, want := range map[string]bool{"": false, "root": true} {
			x, err := c.Exec(t.Context(), id, client.ExecOptions{Shell: "kill -0 " + pid + " 2>&1 | grep -c such; python3 /workspace/read.py " + pid, User: user})
			if err != nil {
				t.Fatal(err)
			}
			if got := x.Stdout; strings.HasPrefix(got, "0\ntried\n") == want || !strings.HasSuffix(got, "tried\n") {
				t.Errorf("user %q got it by %q, %s", user, got, x.Stderr)
			}
		}
	})
}
