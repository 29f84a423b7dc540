package pool

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestRank(t *testing.T) {
	limits := sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 2, PIDs: 512, DiskBytes: 4 << 30, OpenFiles: 65536}
	base := []string{"HTTP_PROXY=http://proxy", "LANG=C.UTF-8", "PATH=/bin"}
	with := func(env ...string) []string { return append(env, base...) }
	for name, tt := range map[string]struct {
		kernel string
		edit   func(*Want)
		want   int
	}{
		"the same":                        {"", func(*Want) {}, 2},
		"another image":                   {"", func(w *Want) { w.Digest = "b" }, 0},
		"another isolation":               {"", func(w *Want) { w.Isolation = sandbox.Container }, 0},
		"less memory":                     {"", func(w *Want) { w.Limits.MemoryBytes-- }, 0},
		"more processes":                  {"", func(w *Want) { w.Limits.PIDs++ }, 0},
		"another disk":                    {"", func(w *Want) { w.Limits.DiskBytes *= 2 }, 0},
		"another user":                    {"", func(w *Want) { w.User = sandbox.UserRoot }, 0},
		"any variable, no kernel":         {"", func(w *Want) { w.Env = with("PYTHONPATH=/x") }, 2},
		"its kernel":                      {"python", func(*Want) {}, 3},
		"another kernel":                  {"node", func(*Want) {}, 1},
		"a variable of the caller's":      {"python", func(w *Want) { w.Env = with("API_KEY=1") }, 3},
		"no proxy":                        {"python", func(w *Want) { w.Env = base[1:] }, 3},
		"a variable of the interpreter's": {"python", func(w *Want) { w.Env = with("PYTHONHASHSEED=0") }, 0},
		"of the loader's":                 {"python", func(w *Want) { w.Env = with("LD_PRELOAD=/x.so") }, 0},
		"another PATH":                    {"python", func(w *Want) { w.Env = []string{base[0], base[1], "PATH=/opt"} }, 0},
		"without LANG":                    {"python", func(w *Want) { w.Env = []string{base[0], base[2]} }, 0},
	} {
		w := Want{Digest: "a", Isolation: sandbox.GVisor, Limits: limits, User: sandbox.UserSandbox, Language: "python", Env: base}
		tt.edit(&w)
		k := Kind{Isolation: sandbox.GVisor, Limits: limits, User: sandbox.UserSandbox, Kernel: tt.kernel}
		if got := w.rank(k, &Member{Digest: "a", env: base}); got != tt.want {
			t.Errorf("%s: rank = %d, want %d", name, got, tt.want)
		}
	}
}
