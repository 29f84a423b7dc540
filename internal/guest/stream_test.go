package guest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A host that leaves in the middle, again and again, gets every byte once.
func TestMillionLinesAcrossBrokenStreams(t *testing.T) {
	h := start(t, nil)
	ctx := testContext(t)
	uid := sandbox.NewUID()
	spec := &guest.Start{ExecSpec: shell("seq 1000000")}
	var got result
	for rng := rand.New(rand.NewPCG(1, 2)); got.exit == nil; {
		s, err := h.Exec(ctx, uid, spec, got.next)
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + rng.IntN(40) {
			m, err := s.Next()
			if err != nil {
				t.Fatalf("Next at %d = %v", got.next, err)
			}
			if got.take(m); got.exit != nil {
				break
			}
			if rng.IntN(2) == 0 {
				if err := h.Ack(ctx, uid, max(0, got.next-rng.Int64N(200_000))); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.Close()
	}
	if n := bytes.Count(got.stdout, []byte("\n")); n != 1_000_000 || !bytes.HasSuffix(got.stdout, []byte("\n1000000\n")) {
		t.Errorf("%d lines, want 1000000", n)
	}
	if *got.exit.Code != 0 || got.exit.Offset != int64(len(got.stdout)) {
		t.Errorf("exit = %+v after %d bytes", got.exit, len(got.stdout))
	}
	s, err := h.Exec(ctx, uid, nil, 5)
	for err == nil {
		_, err = s.Next()
	}
	if !errors.Is(err, errs.WrongState) {
		t.Errorf("attach before what was acknowledged = %v, want wrong state", err)
	}
}

func TestBinaryOutputIsExact(t *testing.T) {
	h := start(t, nil)
	file := filepath.Join(t.TempDir(), "random")
	want := make([]byte, 5<<20)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(want)
	if err := os.WriteFile(file, want, 0o600); err != nil {
		t.Fatal(err)
	}
	r := h.run(t, shell("cat "+file))
	if sha256.Sum256(r.stdout) != sha256.Sum256(want) {
		t.Errorf("%d bytes came, not the %d that were written", len(r.stdout), len(want))
	}
}

// Nobody reads: the command waits, it does not lose and does not fill memory.
func TestCommandWaitsForItsReader(t *testing.T) {
	h := start(t, nil)
	ctx := testContext(t)
	uid := sandbox.NewUID()
	if _, err := nextOf(h.Exec(ctx, uid, &guest.Start{ExecSpec: shell("head -c 20000000 /dev/zero; echo end")}, 0)); err != nil {
		t.Fatal(err)
	}
	var written int64
	eventually(t, func() bool {
		list, err := h.List(ctx)
		if err != nil || len(list) != 1 {
			t.Fatalf("List = %v, %v", list, err)
		}
		still := list[0].Written == written && written > 0
		written = list[0].Written
		return still
	})
	if written > 1<<20 {
		t.Errorf("%d bytes are held, want at most 1 MiB", written)
	}
	r := h.follow(t, ctx, uid, nil, 0)
	if len(r.stdout) != 20_000_004 || *r.exit.Code != 0 {
		t.Errorf("%d bytes, exit %+v, want all of them", len(r.stdout), r.exit)
	}
}

func TestOutputLeftInThePipeIsNotLost(t *testing.T) {
	everywhere(t, func(t *testing.T, h host) {
		// 60 kB fit in the pipe: the command is gone before they are read.
		for range 10 {
			r := h.run(t, shell("head -c 60000 /dev/zero; sleep 100 & exit 0"))
			if len(r.stdout) != 60_000 {
				t.Fatalf("%d bytes, want 60000 (%q, %+v)", len(r.stdout), r.stderr, r.exit)
			}
		}
	})
}

func TestStdinOffsets(t *testing.T) {
	everywhere(t, func(t *testing.T, h host) {
		ctx := testContext(t)
		uid := sandbox.NewUID()
		spec := shell("cat")
		spec.Stdin = true
		s, err := h.Exec(ctx, uid, &guest.Start{ExecSpec: spec}, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, w := range []struct {
			offset int64
			data   string
			eof    bool
			want   int64
		}{
			{0, "hello ", false, 6},
			{0, "hello ", false, 6}, // sent twice, read once
			{3, "lo world", false, 11},
			{11, "", true, 11},
			{11, "", true, 11},
		} {
			at, err := h.WriteStdin(ctx, uid, w.offset, []byte(w.data), w.eof)
			if err != nil || at != w.want {
				t.Errorf("WriteStdin(%d, %q, %v) = %d, %v, want %d", w.offset, w.data, w.eof, at, err, w.want)
			}
			if w.eof {
				continue
			}
			if _, err := h.WriteStdin(ctx, uid, w.want+1, []byte("gap"), false); !errors.Is(err, errs.Invalid) {
				t.Errorf("write beyond the end = %v, want invalid", err)
			}
		}
		var r result
		for r.exit == nil {
			m, err := s.Next()
			if err != nil {
				t.Fatal(err)
			}
			r.take(m)
		}
		if string(r.stdout) != "hello world" {
			t.Errorf("the command read %q, want %q", r.stdout, "hello world")
		}
		if _, err := h.WriteStdin(ctx, uid, 11, []byte("x"), false); !errors.Is(err, errs.WrongState) {
			t.Errorf("write to a command that ended = %v, want wrong state", err)
		}
	})
}

// A command that does not read blocks the write until the caller gives up,
// and the offset says how far it came.
func TestStdinWriteCanBeGivenUp(t *testing.T) {
	h := start(t, nil)
	ctx := testContext(t)
	uid := sandbox.NewUID()
	spec := shell("sleep 0.5; wc -c")
	spec.Stdin = true
	if _, err := nextOf(h.Exec(ctx, uid, &guest.Start{ExecSpec: spec}, 0)); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 1<<20)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := h.WriteStdin(short, uid, 0, data, false); err == nil || errs.KindOf(err) != errs.Timeout {
		t.Fatalf("write that nobody reads = %v, want timeout", err)
	}
	if _, err := h.WriteStdin(ctx, uid, 0, data, true); err != nil {
		t.Fatalf("the same write again = %v", err)
	}
	r := h.follow(t, ctx, uid, nil, 0)
	if got := strings.TrimSpace(string(r.stdout)); got != "1048576" {
		t.Errorf("the command read %s bytes, want 1048576", got)
	}
}

func TestTerminal(t *testing.T) {
	everyLauncher(t, func(t *testing.T, h host) {
		ctx := testContext(t)
		uid := sandbox.NewUID()
		spec := sandbox.ExecSpec{
			Shell: `trap 'stty size' WINCH; stty size; test -t 0 -a -t 1 -a -t 2 && echo tty; while read line; do echo "got $line"; done; echo bye`,
			Cwd:   "/", PTY: &sandbox.WindowSize{Cols: 80, Rows: 24},
		}
		s, err := h.Exec(ctx, uid, &guest.Start{ExecSpec: spec}, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var r result
		until := func(text string) {
			t.Helper()
			for !strings.Contains(string(r.stdout), text) {
				m, err := s.Next()
				if err != nil {
					t.Fatalf("Next = %v after %q", err, r.stdout)
				}
				r.take(m)
			}
		}
		until("24 80\r\ntty\r\n")
		if err := h.Resize(ctx, uid, sandbox.WindowSize{Cols: 132, Rows: 43}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteStdin(ctx, uid, 0, []byte("one\n"), false); err != nil {
			t.Fatal(err)
		}
		until("got one\r\n")
		until("43 132")
		if _, err := h.WriteStdin(ctx, uid, 4, nil, true); err != nil {
			t.Fatal(err)
		}
		until("bye\r\n")
		if m, err := s.Next(); err != nil || m.Exit == nil || *m.Exit.Code != 0 {
			t.Errorf("exit = %+v, %v", m.Exit, err)
		}
		if _, err := s.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("after the exit: %v, want EOF", err)
		}
	})
}

func TestResizeWithoutTerminal(t *testing.T) {
	h := start(t, nil)
	ctx := testContext(t)
	uid := sandbox.NewUID()
	if _, err := nextOf(h.Exec(ctx, uid, &guest.Start{ExecSpec: shell("sleep 100")}, 0)); err != nil {
		t.Fatal(err)
	}
	if err := h.Resize(ctx, uid, sandbox.WindowSize{Cols: 1, Rows: 1}); !errors.Is(err, errs.WrongState) {
		t.Errorf("Resize = %v, want wrong state", err)
	}
}
