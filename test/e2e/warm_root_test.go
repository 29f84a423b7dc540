//go:build root

package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/telemetry"
	"github.com/cubbyhq/cubby/test/harness"
)

// untilPoolIsFull waits until all is there that a daemon keeps ready.
func untilPoolIsFull(t *testing.T, c *sdk.Client) {
	t.Helper()
	eventually(t, 3*time.Minute, "the pool is full", func() bool {
		text, err := c.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pools := telemetry.ReadPools(text)
		for _, p := range pools {
			if p.Ready < p.Wanted {
				return false
			}
		}
		return len(pools) > 0
	})
}

// startOf is how a sandbox came to run: "warm" or "cold".
func startOf(t *testing.T, c *sdk.Client, id string) string {
	t.Helper()
	events, _, err := c.Events(t.Context(), id, 0, 1, "sandbox.created")
	if err != nil || len(events) != 1 {
		t.Fatalf("events %v, %v", events, err)
	}
	var p struct{ Start string }
	decode(t, string(events[0].Payload), &p)
	return p.Start
}

// facts are what can be learned of a sandbox from inside and from outside, by what it
// was learned with.
type facts map[string]string

// factScripts run as root; what they print does not depend on when.
var factScripts = map[string]string{
	"environment":  "env | sort",
	"names":        "hostname; uname -n; cat /proc/sys/kernel/hostname /etc/hostname /etc/hosts /etc/resolv.conf; getent hosts $(hostname)",
	"user":         "id; umask; pwd; getent passwd sandbox; tty",
	"limits":       "ulimit -a; nproc; grep MemTotal /proc/meminfo",
	"rights":       "grep -E '^(Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups)' /proc/self/status",
	"mounts":       "cut -d' ' -f2-4 /proc/mounts | sort",
	"disk":         "df -B1 --output=target,size / /workspace /home/sandbox /tmp",
	"/etc":         "cd /etc && find . -printf '%p %y %m %U:%G %s %l\\n' | sort",
	"files of etc": "cd /etc && find . -type f -exec md5sum {} + | sort -k2",
	"home":         "cd /home && find . -printf '%p %y %m %U:%G %l\\n' | sort",
	"workspace":    "cd /workspace && find . -printf '%p %y %m %U:%G %l\\n' | sort",
	"tmp":          "cd /tmp && find . -printf '%p %y %m %U:%G %s %l\\n' | sort",
	"root":         "find / -maxdepth 1 -printf '%p %y %m %U:%G %l\\n' | sort; find /root /mnt /run /var -xdev -printf '%p %y %m %U:%G %l\\n' | sort",
	"processes":    "for p in /proc/[0-9]*; do echo \"$(stat -c %U $p) $(tr '\\0' ' ' <$p/cmdline)\"; done 2>/dev/null | grep -E '[p]ython|[c]ubby|[n]ode' | sort -u",
	"sockets":      "cat /proc/net/tcp /proc/net/unix 2>/dev/null | awk '{print NF}' | sort | uniq -c | awk '{print $2}'",
	"network":      "curl -s -o /dev/null -w '%{http_code}\\n' --max-time 20 http://denied.example/; curl -s -o /dev/null -w '%{http_connect}\\n' --max-time 20 https://denied.example/",
}

// factCells run in the kernel that has the language's name.
var factCells = []string{
	"import os, sys, json; json.dumps(dict(os.environ), sort_keys=True)",
	"sorted(n for n in dir() if n not in ('os', 'sys', 'json'))",
	"sys.path, sys.argv, sys.version, sys.flags, os.getcwd(), os.getlogin() if False else os.getuid()",
	"sorted(m for m in sys.modules if not m.startswith('_'))",
	"import subprocess; subprocess.run('env | sort', shell=True, capture_output=True, text=True).stdout",
	"import socket; socket.gethostname(), get_ipython().execution_count, In[1][:9]",
}

// what differs from run to run.
var factNoise = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`[0-9a-hjkmnp-tv-z]{26}`), "UID"},
	{regexp.MustCompile(`\.cubby-kernel-[0-9]+`), ".cubby-kernel-N"},
	{regexp.MustCompile(`kernel-[0-9a-f-]{36}`), "kernel-UUID"},
	{regexp.MustCompile(`"JPY_PARENT_PID": "[0-9]+"|JPY_PARENT_PID=[0-9]+`), "JPY_PARENT_PID"},
	{regexp.MustCompile(`([ug]id)=[0-9]{6,}`), "$1=N"},
	{regexp.MustCompile(`(pid|"pid"|PPID|SHLVL)[=: ]+"?[0-9]+"?`), "PID"},
	{regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`), "TIME"},
	{regexp.MustCompile(`"(duration_ms|cursor|at)":[0-9]+`), `"$1":N`},
}

// learn creates a sandbox and finds out what there is to know of it.
func learn(t *testing.T, d *harness.Daemon, c *sdk.Client, isolation, variable, start string) facts {
	t.Helper()
	f := make(facts)
	const id = "the-box"
	text := must(t, http.StatusCreated, "POST", d.URL+"/v1/sandboxes", `{"id":"`+id+`","isolation":"`+isolation+`",
		"env":{"TOKEN":"secret","EMPTY":"",`+variable+`},"labels":{"team":"red"},"metadata":{"k":"v"},
		"network":{"mode":"allowlist","allow":["allowed.example"]},"idle_timeout_seconds":600,"exec_timeout_seconds":100,"ports":[8080]}`)
	if how := startOf(t, c, id); how != start {
		t.Fatalf("the create was %s, want %s", how, start)
	}
	f["created"] = text
	box := d.URL + "/v1/sandboxes/" + id
	f["kernels before"] = must(t, http.StatusOK, "GET", box+"/kernels", "")
	for i, code := range factCells {
		e, err := c.RunCode(t.Context(), id, sdk.CodeRequest{Code: code})
		if err != nil || e.Err() != nil {
			t.Fatalf("%s: %v, %v", code, err, e.Err())
		}
		f[code] = e.Text() + e.Stdout
		if e.Seq != int64(i+1) {
			t.Errorf("cell %d has the number %d", i+1, e.Seq)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(factScripts)) {
		script := factScripts[name]
		for _, user := range []string{"root", "sandbox"} {
			e, err := c.Exec(t.Context(), id, sdk.ExecOptions{Shell: script, User: user})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			f[name+" as "+user] = e.Stdout + e.Stderr
		}
	}
	f["session"] = must(t, http.StatusOK, "POST", box+"/exec", `{"cmd":"cd /tmp; export S=1; env | sort; hostname","session":"s"}`)
	f["kernels"] = must(t, http.StatusOK, "GET", box+"/kernels", "")
	f["sandbox"] = must(t, http.StatusOK, "GET", box, "")
	events, _, err := c.Events(t.Context(), id, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if !strings.HasPrefix(e.Kind, "exec.") && !strings.HasPrefix(e.Kind, "code.") && !strings.HasPrefix(e.Kind, "egress.") {
			f["events"] += e.Kind + " " + strings.Replace(string(e.Payload), start, "START", 1) + "\n"
		}
		if line := string(e.Payload) + "\n"; e.Kind == "egress.denied" && !strings.Contains(f["denied"], line) {
			f["denied"] += line
		}
	}
	// A stop and a start make it anew out of its handle.
	if _, err := c.Stop(t.Context(), id, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"environment", "names", "limits", "mounts"} {
		e, err := c.Exec(t.Context(), id, sdk.ExecOptions{Shell: factScripts[name]})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		f[name+" after a start"] = e.Stdout + e.Stderr
	}
	if err := c.Destroy(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for name, text := range f {
		text = strings.ReplaceAll(text, d.Dir, "DIR")
		for _, n := range factNoise {
			text = n.pattern.ReplaceAllString(text, n.instead)
		}
		f[name] = text
	}
	return f
}

// TestAWarmSandboxIsLikeAColdOne in all that can be asked but times, process ids and the
// environment that its first process was started with.
func TestAWarmSandboxIsLikeAColdOne(t *testing.T) {
	for isolation, variable := range map[string]string{
		"gvisor":    `"PLAIN":"1"`,
		"container": `"PYTHONHASHSEED":"0"`, // which a kernel that has started cannot be given
	} {
		t.Run(isolation, func(t *testing.T) {
			d := harness.Start(t, harness.Options{})
			c := sdk.New(d.URL)
			t.Cleanup(c.Close)
			cold := learn(t, d, c, isolation, variable, "cold")
			if err := d.Stop(); err != nil {
				t.Fatal(err)
			}
			d.MustStart("--pool", "kernel=python,isolation="+isolation)
			c = sdk.New(d.URL)
			t.Cleanup(c.Close)
			untilPoolIsFull(t, c)
			warm := learn(t, d, c, isolation, variable, "warm")
			for name := range cold {
				if diff := cmp.Diff(strings.Split(cold[name], "\n"), strings.Split(warm[name], "\n")); diff != "" {
					t.Errorf("%s: a warm sandbox differs (-cold +warm):\n%s", name, diff)
				}
			}
			if !strings.Contains(warm["environment as root"], "TOKEN=secret") || !strings.Contains(warm[factCells[0]], `"TOKEN": "secret"`) || !strings.Contains(warm["names as root"], "the-box") {
				t.Errorf("the sandbox does not have its identity: %s", warm["environment as root"])
			}
		})
	}
}

// TestNoTwoSandboxesShareAGenerator: each of the pool has its own boot.
func TestNoTwoSandboxesShareAGenerator(t *testing.T) {
	d := harness.Start(t, harness.Options{Flags: []string{"--pool", "count=2,kernel=python;count=2,kernel=node"}})
	c := sdk.New(d.URL)
	t.Cleanup(c.Close)
	untilPoolIsFull(t, c)
	seen := make(map[string]string)
	for _, id := range []string{"a", "b", "c", "d"} {
		language, code := "python", "import random, ssl, uuid; f'{random.random()} {ssl.RAND_bytes(8).hex()} {uuid.uuid4()}'"
		if id > "b" {
			language, code = "node", "[Math.random(), require('crypto').randomBytes(8).toString('hex')].join(' ')"
		}
		if _, err := c.Create(t.Context(), sdk.CreateOptions{ID: id, Runtime: language}); err != nil {
			t.Fatal(err)
		}
		if how := startOf(t, c, id); how != "warm" {
			t.Fatalf("the create of %s was %s", id, how)
		}
		e, err := c.RunCode(t.Context(), id, sdk.CodeRequest{Code: code, Language: language})
		if err != nil || e.Err() != nil {
			t.Fatalf("%v, %v", err, e.Err())
		}
		for word := range strings.FieldsSeq(strings.Trim(e.Text(), "'")) {
			if was := seen[word]; was != "" {
				t.Errorf("%s and %s draw the same: %s", was, id, word)
			}
			seen[word] = id
		}
	}
}

// TestAKilledDaemonLeavesNoPool: the next one removes what was ready, and what it was making
// or giving away.
func TestAKilledDaemonLeavesNoPool(t *testing.T) {
	d := harness.Start(t, harness.Options{})
	for range 3 {
		if err := errors.Join(d.Kill(), d.Start("--pool", "count=2,kernel=python;count=2,isolation=container")); err != nil {
			t.Fatal(err)
		}
		c := sdk.New(d.URL)
		untilPoolIsFull(t, c)
		for _, isolation := range []string{"gvisor", "container"} {
			id := "x-" + isolation
			if _, err := c.Create(t.Context(), sdk.CreateOptions{ID: id, Isolation: isolation}); err != nil {
				t.Fatal(err)
			}
		}
		uids := tracesOf(t, d)
		if len(uids) < 4 {
			t.Errorf("before the kill there is %v, want two sandboxes and what is ready", uids)
		}
		if err := d.Kill(); err != nil {
			t.Fatal(err)
		}
		c.Close()
		d.MustStart()
		d.WaitReady()
		c = sdk.New(d.URL)
		for _, isolation := range []string{"gvisor", "container"} {
			id := "x-" + isolation
			if e, err := c.Exec(t.Context(), id, sdk.Command("hostname")); err != nil || e.Stdout != id+"\n" {
				t.Errorf("%s after the kill: %+v, %v", id, e, err)
			}
			if err := c.Destroy(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		wantNoTraces(t, d, uids)
	}
}

// TestAContainerLikeTheLastIsReady without anybody having named it, whatever its limits, and
// goes with the daemon that made it, also one that is killed.
func TestAContainerLikeTheLastIsReady(t *testing.T) {
	d := harness.Start(t, harness.Options{Flags: []string{"--container-pool", "1"}})
	c := sdk.New(d.URL)
	t.Cleanup(c.Close)
	for i, how := range []string{"cold", "warm", "warm"} {
		id := fmt.Sprintf("box%d", i)
		opts := sdk.CreateOptions{ID: id, Isolation: "container", Limits: &sdk.Limits{MemoryBytes: 300 << 20, PIDs: 77}, User: "root", Env: map[string]string{"TOKEN": id}}
		if _, err := c.Create(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
		if got := startOf(t, c, id); got != how {
			t.Errorf("the create of %s was %s, want %s", id, got, how)
		}
		e, err := c.Exec(t.Context(), id, sdk.Shell("hostname; echo $TOKEN; id -u; cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null"))
		if want := id + "\n" + id + "\n0\n77\n"; err != nil || e.Stdout != want {
			t.Errorf("%s: %+v, %v, want %q", id, e, err, want)
		}
		untilPoolIsFull(t, c)
	}
	uids := tracesOf(t, d)
	if len(uids) != 4 {
		t.Errorf("on the host there is %v, want three containers and one that is ready", uids)
	}
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	d.MustStart()
	d.WaitReady()
	c = sdk.New(d.URL)
	t.Cleanup(c.Close)
	for i := range 3 {
		if err := c.Destroy(t.Context(), fmt.Sprintf("box%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	wantNoTraces(t, d, uids)
}

// wantNoTraces fails when the host has anything of a daemon's sandboxes, or a pin of one.
func wantNoTraces(t *testing.T, d *harness.Daemon, uids []string) {
	t.Helper()
	if left := tracesOf(t, d); len(left) != 0 {
		t.Errorf("left on the host: %v", left)
	}
	for _, uid := range uids {
		if pins, err := filepath.Glob(filepath.Join(harness.Images(t), "pins", "*", uid)); err != nil || len(pins) != 0 {
			t.Errorf("left: %v, %v", pins, err)
		}
	}
}

// tracesOf are the uids of the sandboxes of which a daemon has anything on the host.
func tracesOf(t *testing.T, d *harness.Daemon) (uids []string) {
	t.Helper()
	for _, dir := range []string{"run/oci", "disks"} {
		entries, err := os.ReadDir(filepath.Join(d.Dir, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if uid, _, _ := strings.Cut(e.Name(), "."); len(uid) == len("01m8628s9n1hrardm0aqqwrn9b") {
				uids = append(uids, uid)
			}
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids)
}
