package kernels_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/kernels"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
)

// newSet is one in a sandbox whose files have no kernel.
func newSet(t *testing.T) (*kernels.Set, *proc.Runner) {
	t.Helper()
	empty := t.TempDir()
	inside := func(p string) string { return empty + p }
	life, end := context.WithCancel(context.Background())
	log := slog.New(slog.DiscardHandler)
	procs := proc.New(life, proc.Config{Env: []string{"PATH=" + empty}, OneUser: true, MapPath: inside, Log: log, Now: time.Now})
	if err := procs.Open(); err != nil {
		t.Fatal(err)
	}
	s := kernels.New(life, procs, kernels.Config{OneUser: true, MapPath: inside, Log: log, Now: time.Now})
	t.Cleanup(func() {
		s.End(proc.Cause{Text: proc.ShutdownText})
		end()
		s.Wait()
		procs.Close()
	})
	return s, procs
}

func TestSetWithoutKernels(t *testing.T) {
	s, _ := newSet(t)
	ctx := t.Context()
	if live, kinds, err := s.List(); err != nil || len(live) != 0 || len(kinds) != 0 {
		t.Errorf("List = %v, %v, %v", live, kinds, err)
	}
	for name, tt := range map[string]struct {
		err  error
		kind errs.Kind
	}{
		"create without a language": {second(s.Create(ctx, &guestv1.KernelSpec{})), errs.Invalid},
		"create of no kind":         {second(s.Create(ctx, &guestv1.KernelSpec{Language: "cobol"})), errs.NotFound},
		"create of a bad name":      {second(s.Create(ctx, &guestv1.KernelSpec{Language: "cobol", Name: "a\n"})), errs.Invalid},
		"interrupt":                 {second(s.Interrupt("python")), errs.NotFound},
		"restart":                   {second(s.Restart(ctx, "python")), errs.NotFound},
		"delete":                    {s.Delete(ctx, "python"), errs.NotFound},
		"ask":                       {second(s.Ask(ctx, &guestv1.AskKernelRequest{Name: "python"})), errs.NotFound},
	} {
		if !errors.Is(tt.err, tt.kind) {
			t.Errorf("%s = %v, want %v", name, tt.err, tt.kind)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestCellWithoutAKernel(t *testing.T) {
	s, procs := newSet(t)
	for name, tt := range map[string]struct {
		cell *guestv1.Cell
		says string
	}{
		"no kernel of this name": {&guestv1.Cell{Kernel: "x"}, "there is no kernel"},
		"no kind":                {&guestv1.Cell{Language: "cobol"}, "has no kernel for"},
	} {
		e := procs.NewExec(name)
		c := s.Enqueue(e, &guestv1.ExecStart{Cell: tt.cell})
		<-e.Begun()
		exit := e.Exit()
		if exit.GetReason() != guestv1.ExitReason_EXIT_REASON_NOT_STARTED || !strings.Contains(exit.GetMessage(), tt.says) || c.PID() != 0 {
			t.Errorf("%s: exit %v, pid %d", name, exit, c.PID())
		}
		if err := c.Signal(t.Context(), 2, 0, false); !errors.Is(err, errs.WrongState) {
			t.Errorf("%s: Signal = %v, want wrong state", name, err)
		}
	}
}

func TestSetThatEndsTakesNoCells(t *testing.T) {
	s, procs := newSet(t)
	s.End(proc.Cause{Text: proc.ShutdownText})
	e := procs.NewExec("late")
	s.Enqueue(e, &guestv1.ExecStart{Cell: &guestv1.Cell{Language: "python"}})
	<-e.Begun()
	if exit := e.Exit(); exit.GetReason() != guestv1.ExitReason_EXIT_REASON_NOT_STARTED {
		t.Errorf("exit %v", exit)
	}
}
