package pool

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestRank(t *testing.T) {
	limits := sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 2, PIDs: 512, DiskBytes: 4 << 30, OpenFiles: 65536}
	for name, tt := range map[string]struct {
		kernel string
		edit   func(*Want)
		want   int
	}{
		"the same":          {"", func(*Want) {}, 2},
		"another image":     {"", func(w *Want) { w.Digest = "b" }, 0},
		"another isolation": {"", func(w *Want) { w.Isolation = sandbox.Container }, 0},
		"less memory":       {"", func(w *Want) { w.Limits.MemoryBytes-- }, 0},
		"more processes":    {"", func(w *Want) { w.Limits.PIDs++ }, 0},
		"another disk":      {"", func(w *Want) { w.Limits.DiskBytes *= 2 }, 0},
		"another user":      {"", func(w *Want) { w.User = sandbox.UserRoot }, 0},
		"its kernel":        {"python", func(*Want) {}, 3},
		"another kernel":    {"node", func(*Want) {}, 1},
	} {
		w := Want{Digest: "a", Isolation: sandbox.GVisor, Limits: limits, User: sandbox.UserSandbox, Language: "python"}
		tt.edit(&w)
		m := &Member{Digest: "a", of: Kind{Isolation: sandbox.GVisor, Limits: limits, User: sandbox.UserSandbox, Kernel: tt.kernel}}
		if got := w.rank(m); got != tt.want {
			t.Errorf("%s: rank = %d, want %d", name, got, tt.want)
		}
	}
}
