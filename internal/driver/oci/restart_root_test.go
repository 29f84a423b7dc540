//go:build root

package oci

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/poll"
)

// A start finds a run that ends before its agent has answered, as one does whose
// destruction was cut off. It is begun anew.
func TestStartOfARunThatEnds(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			r := start(t, w.runtime, testSpec(t, w.isolation))
			pids := processesOf(t, r.spec.UID)
			signal := func(sig unix.Signal) {
				for _, pid := range pids {
					n, err := strconv.Atoi(pid)
					r.do("a pid", err)
					_ = unix.Kill(n, sig) // it may be gone
				}
			}
			signal(unix.SIGSTOP)
			r.do("a sandbox that stands still", poll.Until(r.ctx, time.Millisecond, 10*time.Millisecond, func() (bool, error) {
				still := true
				for _, pid := range pids {
					tasks, _ := filepath.Glob("/proc/" + pid + "/task/*/stat")
					for _, task := range tasks {
						stat, err := os.ReadFile(task)
						_, state, _ := strings.Cut(string(stat), ") ")
						still = still && (err != nil || state[0] == 'T' || state[0] == 't')
					}
				}
				return still, nil
			}))
			started := make(chan error, 1)
			go func() { started <- r.d.Start(r.ctx, r.h) }()
			stacks := make([]byte, 1<<20)
			r.do("a start that waits", poll.Until(r.ctx, time.Millisecond, 10*time.Millisecond, func() (bool, error) {
				return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*Driver).greet(")), nil
			}))
			signal(unix.SIGKILL)
			r.do("Start", <-started)
			r.alive()
		})
	}
}
