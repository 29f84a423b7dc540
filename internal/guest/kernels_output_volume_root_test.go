//go:build root && !race

package guest_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestMuchOutputOfCells(t *testing.T) {
	h := withKernels(t, nil)
	// A gigabyte comes from a real sandbox, in test/e2e: here the agent is part
	// of the test and slow under the race detector.
	t.Run("much text", func(t *testing.T) {
		s := h.cell(t, python("for _ in range(150): print('x' * (1 << 20))\n7"))
		s.wants(t, 0, sandbox.EndExited)
		if got := int64(len(s.stdout)) + s.exit.StdoutCut; got < 150<<20 || s.value() != "7" {
			t.Errorf("%d bytes kept, %d cut, value %q", len(s.stdout), s.exit.StdoutCut, s.value())
		}
	})
	t.Run("nobody reads", func(t *testing.T) {
		ctx := kernelContext(t)
		uid := sandbox.NewUID()
		stream, err := h.Exec(ctx, uid, &guest.Start{ExecSpec: python("for _ in range(60): print('x' * (1 << 20))\n7")}, 0)
		if err != nil {
			t.Fatal(err)
		}
		eventuallyKernel(t, func() bool { k := h.kernel(t, "python"); return k.Count == 2 && k.Status == sandbox.KernelIdle })
		stream.Close()
		s := h.rest(t, ctx, uid)
		s.wants(t, 0, sandbox.EndExited)
		if got := int64(len(s.stdout)) + s.exit.StdoutCut; got < 60<<20 || s.exit.StdoutCut == 0 || len(s.stdout) > 40<<20 || s.value() != "7" {
			t.Errorf("%d bytes kept, %d cut, value %q", len(s.stdout), s.exit.StdoutCut, s.value())
		}
	})
	t.Run("a display of 50 MB", func(t *testing.T) {
		s := h.cell(t, python("from IPython.display import display\ndisplay({'text/html': 'x' * 50_000_000}, raw=True)\n7"))
		s.wants(t, 0, sandbox.EndExited)
		if s.exit.RichCut < 50_000_000 || len(s.rich) > 10_000 || s.value() != "7" || !strings.Contains(plainText(s.records[0].Display.Data), "left out: text/html, 50") {
			t.Errorf("%d bytes cut, value %q, %.1000s", s.exit.RichCut, s.value(), s.rich)
		}
	})
	t.Run("JavaScript", func(t *testing.T) {
		s := h.cell(t, cellSpec("node", "node", "console.log('x'.repeat(1e8)); display({html: 'x'.repeat(5e7)}); 7"))
		s.wants(t, 0, sandbox.EndExited)
		if got := int64(len(s.stdout)) + s.exit.StdoutCut; got < 1e8 || !bytes.HasPrefix(s.stdout, []byte("xxx")) || s.exit.RichCut < 5e7 || s.value() != "7" {
			t.Errorf("%d bytes kept, %d and %d cut, value %q", len(s.stdout), s.exit.StdoutCut, s.exit.RichCut, s.value())
		}
	})
	t.Run("a long error", func(t *testing.T) {
		s := h.cell(t, python("raise ValueError('x' * 30_000_000)"))
		s.wants(t, 1, sandbox.EndExited)
		if s.failure() == "" || len(s.rich) > 17<<20 || s.exit.RichCut == 0 {
			t.Errorf("error %q in %d bytes, %d cut", s.failure(), len(s.rich), s.exit.RichCut)
		}
	})
}
