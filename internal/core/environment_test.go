package core_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestEnvironment(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Spec: sandbox.Spec{
		Env: map[string]string{"OVER": "caller", "HTTPS_PROXY": "mine"},
	}}); err != nil {
		t.Fatal(err)
	}
	r, err := w.Execs().Run(w.ctx, "a", sandbox.ExecSpec{
		Shell: `echo "$IMAGE $OVER $HTTPS_PROXY $https_proxy $http_proxy $NO_PROXY $LANG $HOME $USER $EXEC $JAVA_TOOL_OPTIONS"`,
		Env:   map[string]string{"EXEC": "exec"},
	}, -1, live.OutputCaps{Stdout: -1})
	want := "yes caller mine http://127.0.0.1:3128 http://127.0.0.1:3128 localhost,127.0.0.1,::1 C.UTF-8 /home/sandbox sandbox exec " +
		"-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128\n"
	if err != nil || string(r.Stdout) != want {
		t.Errorf("the environment is %q, %v, want %q", r.Stdout, err, want)
	}
}

// The variables that name the proxy are there unless a create leaves them out,
// and that never changes.
func TestProxyVariables(t *testing.T) {
	w := newWorld(t)
	yes, no := true, false
	sorted := func(id string) string {
		t.Helper()
		return string(w.sh(id, `env | grep -iE '^([a-z]+_proxy|java_tool_options)=' | cut -d= -f1 | LC_ALL=C sort | tr '\n' ' '`).Stdout)
	}
	const all = "HTTPS_PROXY HTTP_PROXY JAVA_TOOL_OPTIONS NO_PROXY http_proxy https_proxy no_proxy "
	for _, tt := range []struct {
		id      string
		network sandbox.Policy
		want    string
	}{
		{"default", sandbox.Policy{}, all},
		{"named", sandbox.Policy{ProxyEnv: &yes}, all},
		{"unnamed", sandbox.Policy{ProxyEnv: &no}, ""},
		{"open", sandbox.Policy{Mode: sandbox.NetworkOpen, ProxyEnv: &no}, ""},
	} {
		b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: tt.id, Spec: sandbox.Spec{Network: tt.network}})
		if err != nil {
			t.Fatal(err)
		}
		if got := sorted(tt.id); got != tt.want || b.Spec.Network.NamesProxy() != (tt.want != "") {
			t.Errorf("%s: the environment has %q and the spec says %v, want %q", tt.id, got, b.Spec.Network.NamesProxy(), tt.want)
		}
	}
	b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "own", Spec: sandbox.Spec{
		Network: sandbox.Policy{ProxyEnv: &no}, Env: map[string]string{"HTTP_PROXY": "mine"},
	}})
	if err != nil || sorted(string(b.ID)) != "HTTP_PROXY " {
		t.Errorf("the caller's own variable: %q, %v", sorted(string(b.ID)), err)
	}

	for _, tt := range []struct {
		id     string
		policy sandbox.Policy
		ok     bool
	}{
		{"unnamed", sandbox.Policy{ProxyEnv: &yes}, false},
		{"unnamed", sandbox.Policy{Mode: sandbox.NetworkOpen, ProxyEnv: &yes}, false},
		{"default", sandbox.Policy{Allow: []string{"example.com"}, ProxyEnv: &no}, false},
		{"default", sandbox.Policy{Mode: sandbox.NetworkOpen, ProxyEnv: &yes}, true},
		{"unnamed", sandbox.Policy{ProxyEnv: &no}, true},
		{"unnamed", sandbox.Policy{Mode: sandbox.NetworkOpen}, true},
		{"unnamed", sandbox.Policy{Mode: sandbox.NetworkAllowlist, ProxyEnv: &no}, true},
		{"unnamed", sandbox.Policy{Allow: []string{"example.com"}}, true},
	} {
		before, err := w.Sandboxes().Get(w.ctx, tt.id)
		if err != nil {
			t.Fatal(err)
		}
		after, err := w.Sandboxes().Update(w.ctx, tt.id, lifecycle.Patch{Network: &tt.policy})
		if tt.ok != (err == nil) || !tt.ok && (!errors.Is(err, errs.Invalid) || errs.Public(err).Hint == "") {
			t.Errorf("%s: Update(%+v) = %v, want that it goes: %v", tt.id, tt.policy, err, tt.ok)
		}
		if err != nil {
			after, err = w.Sandboxes().Get(w.ctx, tt.id)
			if err != nil || !reflect.DeepEqual(after.Spec.Network, before.Spec.Network) {
				t.Errorf("%s: a refused change left %+v, %v", tt.id, after.Spec.Network, err)
			}
		}
		if after.Spec.Network.NamesProxy() != before.Spec.Network.NamesProxy() {
			t.Errorf("%s: Update(%+v) changed what the environment is", tt.id, tt.policy)
		}
	}

	w.restart()
	if b, err := w.Sandboxes().Get(w.ctx, "unnamed"); err != nil || b.Spec.Network.NamesProxy() {
		t.Errorf("after a restart of the daemon: %+v, %v", b.Spec.Network, err)
	}
	for id, want := range map[string]string{"unnamed": "", "default": all} {
		if _, err := w.Sandboxes().Stop(w.ctx, id, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Sandboxes().Start(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		if got := sorted(id); got != want {
			t.Errorf("%s: started again it has %q, want %q", id, got, want)
		}
	}
}
