//go:build root

// Package egress_test attacks the way out of sandboxes, from inside of real
// ones under a real daemon. The attacks are the scripts in testdata. Those
// that something would answer run first on the host against a proxy without
// policy, where they must get through: what a sandbox stops is something that
// works.
package egress_test

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/client"
)

//go:embed testdata
var scripts embed.FS

// outcome is what a script says of one attack.
type outcome struct {
	Case    string `json:"case"`
	Through bool   `json:"through"`
	// Control: it gets through where nothing holds it. Allowed: it is no
	// attack and gets through everywhere.
	Control bool `json:"control"`
	Allowed bool `json:"allowed"`
	// Leaves is what the wire or the host's resolver sees where nothing holds
	// it. Whether somebody answers then says little: the kernel of a sandbox may
	// take what goes nowhere.
	Leaves  string `json:"leaves"`
	Timeout bool   `json:"timeout"` // nothing was answered, which proves nothing else
	Note    string `json:"note"`
}

// family is one script, and what its cases may do to the world in a sandbox
// that holds.
type family struct {
	script string
	flows  bool // the allowed servers are reached
	proxy  bool // it goes through the proxy, and needs one on the host
}

var families = []family{
	{script: "direct"},
	{script: "kernel"},
	{script: "unixsockets", flows: true, proxy: true},
	{script: "targets", proxy: true},
	{script: "names", flows: true, proxy: true},
	{script: "tls", flows: true, proxy: true},
	{script: "web", flows: true, proxy: true},
	{script: "socksvariants", flows: true, proxy: true},
	{script: "resolver"},
}

// policy is that of the sandbox in which the attacks run. Names that lead to
// other networks are on it: their addresses alone keep them out.
func policy() *client.Network {
	return &client.Network{
		Mode: "allowlist",
		Allow: []string{
			"good.example.com:80", "good.example.com:443", "*.wild.example.com:80", "*.wild.example.com:443", "192.0.2.0/28:80",
			"10.9.0.0/16", "loop.example.com", "zero.example.com", "private.example.com", "meta.example.com", "own.example.com",
			"mapped.example.com", "nat64.example.com", "six.example.com", "mixed.example.com", "rebind.example.com", "denied.example.com",
			"denynet.example.com", "127.0.0.1.nip.example.org", "metadata.google.internal",
		},
		Deny: []string{"denied.example.com", "192.0.2.9"},
	}
}

// allowedFlows are the servers that policy lets sandboxes reach.
func allowedFlows() []netip.AddrPort {
	var list []netip.AddrPort
	for _, a := range []string{goodAddr, goodAddr6, wildAddr} {
		for _, p := range []uint16{80, 443} {
			list = append(list, netip.AddrPortFrom(netip.MustParseAddr(a), p))
		}
	}
	return append(list, netip.MustParseAddrPort("192.0.2.8:80"))
}

// askable are the names that a sandbox may have looked up.
func askable() []string {
	list := []string{"a.wild.example.com.", "a.b.wild.example.com.", "wild.example.com.", "rebind.example.com.", "127.0.0.1.nip.example.org."}
	for name := range zone {
		if strings.HasSuffix(name, ".example.com.") && name != "denied.example.com." {
			list = append(list, name)
		}
	}
	return list
}

// rig is the world with a daemon in it.
type rig struct {
	*world
	daemon *daemon
	env    map[string]string // what the scripts need to know
}

func TestBypass(t *testing.T) {
	w := newWorld(t)
	r := &rig{world: w, env: map[string]string{
		"PYTHONDONTWRITEBYTECODE": "1", "ATTACK_ABSTRACT": "cubby-canary", "ATTACK_HOST": "good.example.com", "ATTACK_KEPT": "refused",
	}}
	socket := filepath.Join(t.TempDir(), "docker.sock")
	listenUnix(t, w.host, socket)
	listenUnix(t, w.host, "@"+r.env["ATTACK_ABSTRACT"])
	r.env["ATTACK_SOCKET"] = socket
	r.daemon = startDaemon(t)
	r.env["ATTACK_API"], r.env["ATTACK_GRPC"] = r.daemon.api, r.daemon.grpc

	r.create(t, "victim", "container", &client.Network{Mode: "open"})
	channels := r.daemon.channels()
	if len(channels) != 1 {
		t.Fatalf("channels: %v", channels)
	}
	r.env["ATTACK_CHANNEL"] = channels[0]
	r.serveIn(t, "victim")

	t.Run("control", r.control)
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) { r.attack(t, isolation) })
	}
}

// control runs every attack on the host.
func (r *rig) control(t *testing.T) {
	r.openProxy(t)
	gates := append(slices.Clone(families), family{script: "gate", proxy: true})
	sawAny := false
	for _, f := range gates {
		t.Run(f.script, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, "python3", f.script+".py")
			cmd.Dir = "testdata"
			cmd.Env = append(os.Environ(), "ATTACK_CONTROL=1")
			for k, v := range r.env {
				cmd.Env = append(cmd.Env, k+"="+v)
			}
			var errors strings.Builder
			cmd.Stderr = &errors
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, out, errors.String())
			}
			left := r.left(t)
			for _, o := range parse(t, string(out)) {
				if (o.Control || o.Allowed) && !o.Through {
					t.Errorf("%s: does not get through where nothing holds it: %s", o.Case, o.Note)
				}
				if o.Leaves != "" && !slices.Contains(left, o.Leaves) {
					t.Errorf("%s: where nothing holds it, the world does not see %q: %s", o.Case, o.Leaves, o.Note)
				}
			}
			sawAny = sawAny || len(left)+len(r.host.take())+len(r.outside.take()) > 0
		})
	}
	if !sawAny {
		t.Error("the attacks got through, and the canaries saw none")
	}
}

// left is what the world saw of the host since the last call: the flows on the
// wire, and the names that the host's resolver was asked for.
func (r *rig) left(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, f := range r.wire.take(t) {
		list = append(list, f.String())
	}
	for _, name := range r.names.take() {
		list = append(list, "dns "+name)
	}
	return list
}

// openProxy runs the proxy without policy until the test ends.
func (r *rig) openProxy(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "python3", "testdata/open_proxy.py")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the proxy says %q, %v", line, err)
	}
}

// attack runs every attack in sandboxes.
func (r *rig) attack(t *testing.T, isolation string) {
	held, open := "held-"+isolation, "open-"+isolation
	r.create(t, held, isolation, policy())
	r.create(t, open, isolation, &client.Network{Mode: "open"})
	for _, user := range []string{"sandbox", "root"} {
		for _, f := range families {
			t.Run(f.script+"/"+user, func(t *testing.T) { r.contained(t, held, user, f) })
		}
		t.Run("targets of an open network/"+user, func(t *testing.T) { r.contained(t, open, user, family{script: "targets", proxy: true}) })
	}
	t.Run("floods", func(t *testing.T) {
		r.contained(t, held, "sandbox", family{script: "floods", flows: true, proxy: true})
	})
	t.Run("while the policy changes", func(t *testing.T) { r.changes(t, held) })
}

// contained runs a script in a sandbox and expects that nothing gets through.
func (r *rig) contained(t *testing.T, box, user string, f family) {
	t.Helper()
	r.forget(t)
	for _, o := range r.run(t, box, user, f.script, nil) {
		switch {
		case o.Allowed && !o.Through:
			t.Errorf("%s: is allowed and does not get through: %s", o.Case, o.Note)
		case o.Through && !o.Allowed:
			t.Errorf("%s: gets through: %s", o.Case, o.Note)
		case o.Timeout && o.Leaves == "":
			t.Errorf("%s: was not answered, which proves nothing", o.Case)
		}
	}
	allowed := allowedFlows()
	for _, flow := range r.wire.take(t) {
		if !f.flows || flow.proto != "tcp" || !slices.Contains(allowed, flow.to) {
			t.Errorf("on the wire: %s", flow)
		}
	}
	if hits := r.host.take(); len(hits) > 0 {
		t.Errorf("the host's canaries were reached: %q", hits)
	}
	for _, name := range r.names.take() {
		if !f.proxy || !slices.Contains(askable(), name) {
			t.Errorf("looked up: %s", name)
		}
	}
}

// forget drops what the canaries saw so far.
func (r *rig) forget(t *testing.T) {
	t.Helper()
	r.wire.take(t)
	r.host.take()
	r.outside.take()
	r.names.take()
}

// changes runs the attacks that a change of the world makes possible, on
// connections that were allowed before.
func (r *rig) changes(t *testing.T, box string) {
	update := func(n *client.Network) func() {
		return func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if _, err := r.daemon.client.Update(ctx, box, client.Patch{Network: n}); err != nil {
				t.Errorf("update: %v", err)
			}
		}
	}
	narrow, denied, denyAddress := policy(), policy(), policy()
	narrow.Allow = []string{"a.wild.example.com"}
	denied.Deny = []string{"good.example.com"}
	denyAddress.Deny = []string{goodAddr, goodAddr6}
	for _, change := range []struct {
		name, host, kept string
		do               func()
	}{
		{"a narrower list", "good.example.com", "refused", update(narrow)},
		{"a name denied", "good.example.com", "refused", update(denied)},
		{"an address denied", "good.example.com", "refused", update(denyAddress)},
		{"no network", "good.example.com", "refused", update(&client.Network{Mode: "none"})},
		// The connection stays with the address that was checked.
		{"the name leads elsewhere", "rebind.example.com", "goes on", func() { r.names.rebind(true) }},
	} {
		t.Run(change.name, func(t *testing.T) {
			update(policy())()
			r.names.rebind(false)
			r.forget(t)
			r.outside.onGate(change.do)
			defer r.outside.onGate(nil)
			env := map[string]string{"ATTACK_HOST": change.host, "ATTACK_KEPT": change.kept}
			for _, o := range r.run(t, box, "sandbox", "gate", env) {
				if o.Through != o.Allowed || o.Timeout {
					t.Errorf("%s: through %v, want %v: %s", o.Case, o.Through, o.Allowed, o.Note)
				}
			}
			if hits := r.host.take(); len(hits) > 0 {
				t.Errorf("the host's canaries were reached: %q", hits)
			}
		})
	}
}

func (r *rig) create(t *testing.T, id, isolation string, n *client.Network) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if _, err := r.daemon.client.Create(ctx, client.CreateOptions{ID: id, Isolation: isolation, Network: n}); err != nil {
		t.Fatalf("create %s: %v", id, err)
	}
	entries, err := fs.Glob(scripts, "testdata/*.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range entries {
		text, err := scripts.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.daemon.client.Files(id).Write(ctx, "/workspace/"+strings.TrimPrefix(path, "testdata/"), text, client.WriteOptions{})
		_ = text.Close()
		if err != nil {
			t.Fatalf("write %s: %v", path, err)
		}
	}
}

// serveIn lets a sandbox listen on a port of every address that it has.
func (r *rig) serveIn(t *testing.T, box string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const server = `import socket, threading
s = socket.create_server(("", 8099))
print("ready", flush=True)
while True:
    c = s.accept()[0]
    c.sendall(b"CANARY\n")
    c.close()`
	const probe = `import socket; print(socket.create_connection(("127.0.0.1", 8099), 30).recv(100))`
	if _, err := r.daemon.client.StartExec(ctx, box, client.Command("python3", "-c", server)); err != nil {
		t.Fatal(err)
	}
	// It can be reached where it is.
	e, err := r.daemon.client.Exec(ctx, box, client.Shell(`until python3 -c '`+probe+`'; do :; done 2>/dev/null`))
	if err != nil || !strings.Contains(e.Stdout, "CANARY") {
		t.Fatalf("a server in a sandbox: %v %q", err, e.Stdout)
	}
}

// run runs a script in a sandbox.
func (r *rig) run(t *testing.T, box, user, script string, env map[string]string) []outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	defer cancel()
	o := client.Command("python3", "/workspace/"+script+".py")
	o.User, o.Env, o.Timeout = user, map[string]string{}, 4*patience
	for _, m := range []map[string]string{r.env, env} {
		for k, v := range m {
			o.Env[k] = v
		}
	}
	e, err := r.daemon.client.Exec(ctx, box, o)
	if err != nil {
		t.Fatal(err)
	}
	if e.ExitCode == nil || *e.ExitCode != 0 {
		t.Fatalf("%s ended with %s: %s", script, e.Reason, e.Stderr)
	}
	return parse(t, e.Stdout)
}

func parse(t *testing.T, text string) []outcome {
	t.Helper()
	var list []outcome
	for line := range strings.Lines(text) {
		var o outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		list = append(list, o)
	}
	if len(list) == 0 {
		t.Fatal("the script has no cases")
	}
	return list
}
