package store

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// finished adds an exec that has ended with code 0.
func finished(t testing.TB, s *Store, box sandbox.UID) (seq int64) {
	t.Helper()
	seq, err := s.CreateExec(t.Context(), sandbox.Exec{UID: sandbox.NewUID(), Box: box})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.StartExec(t.Context(), box, seq, s.now()); err != nil {
		t.Fatal(err)
	}
	code := 0
	exit := sandbox.Exit{Code: &code, Reason: sandbox.EndExited}
	if _, err := s.FinishExec(t.Context(), box, seq, exit, sandbox.ExecDone, s.now()); err != nil {
		t.Fatal(err)
	}
	return seq
}

func TestExecLife(t *testing.T) {
	s, c := fresh(t)
	b := create(t, s, box("a"))
	timeout := 3 * time.Second
	env := map[string]string{"KEY": "value"}
	want := sandbox.Exec{
		UID: sandbox.NewUID(), Box: b.UID, Seq: 1, Status: sandbox.ExecPending, CreatedAt: c.advance(time.Second),
		Spec: sandbox.ExecSpec{Argv: []string{"sh", "-c", "true"}, Cwd: "/", User: "root", Timeout: &timeout, PTY: &sandbox.WindowSize{Cols: 80, Rows: 25}},
	}
	given := want
	given.Spec.Env = env
	seq, err := s.CreateExec(t.Context(), given, sandbox.Event{Box: b.UID, Kind: "created"})
	if err != nil || seq != 1 {
		t.Fatalf("CreateExec = %d, %v", seq, err)
	}
	check := func(when string) {
		t.Helper()
		got, err := s.Exec(t.Context(), b.UID, 1)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", when, err, diff)
		}
	}
	check("pending")
	if got, err := s.ExecEnv(t.Context(), b.UID, 1); err != nil || !cmp.Equal(got, env) {
		t.Errorf("ExecEnv = %v, %v, want %v", got, err, env)
	}

	want.Status, want.StartedAt = sandbox.ExecRunning, c.advance(time.Second)
	for range 2 { // a start that is sent twice starts once
		if err := s.StartExec(t.Context(), b.UID, 1, want.StartedAt, sandbox.Event{Box: b.UID, Kind: "started"}); err != nil {
			t.Fatal(err)
		}
	}
	check("running")
	_, err = s.ExecEnv(t.Context(), b.UID, 1)
	wantKind(t, "ExecEnv after the start", err, errs.NotFound)

	code := 137
	want.Exit = &sandbox.Exit{Code: &code, Signal: "SIGKILL", Reason: sandbox.EndOOM, Message: "python3", StdoutCut: 5}
	want.Status, want.FinishedAt = sandbox.ExecError, c.advance(time.Second)
	first, err := s.FinishExec(t.Context(), b.UID, 1, *want.Exit, want.Status, want.FinishedAt, sandbox.Event{Box: b.UID, Kind: "finished"})
	if err != nil || !first {
		t.Fatalf("FinishExec = %v, %v", first, err)
	}
	first, err = s.FinishExec(t.Context(), b.UID, 1, sandbox.Exit{Reason: sandbox.EndLost}, sandbox.ExecError,
		c.advance(time.Second), sandbox.Event{Box: b.UID, Kind: "finished"})
	if err != nil || first {
		t.Errorf("FinishExec again = %v, %v, want no-op", first, err)
	}
	check("finished")
	wantKind(t, "StartExec after the end", s.StartExec(t.Context(), b.UID, 1, c.Now()), errs.WrongState)

	events, err := s.Events(t.Context(), b.UID, 0, 0)
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	if diff := cmp.Diff([]string{"created", "started", "finished"}, kinds); err != nil || diff != "" {
		t.Errorf("events: %v (-want +got):\n%s", err, diff)
	}
	got, err := s.SandboxByUID(t.Context(), b.UID)
	if err != nil || !got.LastActiveAt.Equal(want.FinishedAt) {
		t.Errorf("LastActiveAt = %v, %v, want the finish %v", got.LastActiveAt, err, want.FinishedAt)
	}
}

func TestExecErrors(t *testing.T) {
	s, c := fresh(t)
	b := create(t, s, box("a"))
	unknown := sandbox.NewUID()
	_, err := s.CreateExec(t.Context(), sandbox.Exec{UID: sandbox.NewUID(), Box: unknown})
	wantKind(t, "CreateExec in an unknown sandbox", err, errs.NotFound)
	e := sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID}
	if _, err := s.CreateExec(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	_, err = s.CreateExec(t.Context(), e)
	wantKind(t, "CreateExec with a known uid", err, errs.Conflict)
	if seq := finished(t, s, b.UID); seq != 2 {
		t.Errorf("a refused create took a number: the next is %d, want 2", seq)
	}
	for name, err := range map[string]error{
		"StartExec": s.StartExec(t.Context(), b.UID, 9, c.Now()),
		"FinishExec": func() error {
			_, err := s.FinishExec(t.Context(), b.UID, 9, sandbox.Exit{}, sandbox.ExecDone, c.Now())
			return err
		}(),
		"Exec":    func() error { _, err := s.Exec(t.Context(), b.UID, 9); return err }(),
		"ExecEnv": func() error { _, err := s.ExecEnv(t.Context(), unknown, 1); return err }(),
	} {
		wantKind(t, name+" of an unknown exec", err, errs.NotFound)
	}
	_, err = s.FinishExec(t.Context(), b.UID, 1, sandbox.Exit{}, sandbox.ExecRunning, c.Now())
	wantKind(t, "FinishExec with a status that is no end", err, errs.Internal)

	move(t, s, b.UID, sandbox.Destroyed, Change{})
	_, err = s.CreateExec(t.Context(), sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID})
	wantKind(t, "CreateExec in a destroyed sandbox", err, errs.WrongState)
	if first, err := s.FinishExec(t.Context(), b.UID, 1, sandbox.Exit{Reason: sandbox.EndDestroyed}, sandbox.ExecError, c.Now()); !first || err != nil {
		t.Errorf("FinishExec after the sandbox has ended = %v, %v", first, err)
	}
}

func TestExecLists(t *testing.T) {
	s, _ := fresh(t)
	a, b := create(t, s, box("a")), create(t, s, box("b"))
	for range 5 {
		finished(t, s, a.UID)
	}
	for _, uid := range []sandbox.UID{a.UID, b.UID} {
		for range 2 {
			e := sandbox.Exec{UID: sandbox.NewUID(), Box: uid, Spec: sandbox.ExecSpec{Env: map[string]string{"K": "v"}}}
			if _, err := s.CreateExec(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name  string
		query ExecQuery
		want  []int64
	}{
		{"all", ExecQuery{}, []int64{1, 2, 3, 4, 5, 6, 7}},
		{"after", ExecQuery{AfterSeq: 5}, []int64{6, 7}},
		{"limit", ExecQuery{AfterSeq: 1, Limit: 2}, []int64{2, 3}},
		{"unfinished", ExecQuery{Unfinished: true}, []int64{6, 7}},
		{"none", ExecQuery{AfterSeq: 7}, nil},
	} {
		execs, err := s.Execs(t.Context(), a.UID, tt.query)
		var got []int64
		for _, e := range execs {
			got = append(got, e.Seq)
			if e.Spec.Env != nil {
				t.Errorf("%s: exec %d is listed with its env", tt.name, e.Seq)
			}
		}
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
		}
	}
	execs, err := s.UnfinishedExecs(t.Context())
	if err != nil || len(execs) != 4 {
		t.Errorf("UnfinishedExecs = %d, %v, want 4", len(execs), err)
	}
}

// TestSeqWithoutGaps has many goroutines create execs, some of which are
// refused, in the same sandboxes.
func TestSeqWithoutGaps(t *testing.T) {
	s, _ := fresh(t)
	boxes := []sandbox.UID{create(t, s, box("a")).UID, create(t, s, box("b")).UID}
	taken := sandbox.Exec{UID: sandbox.NewUID(), Box: create(t, s, box("c")).UID}
	if _, err := s.CreateExec(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	const workers, each = 8, 25
	var mu sync.Mutex
	seqs := map[sandbox.UID][]int64{}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				box := boxes[(w+i)%2]
				if i%5 == 0 {
					_, err := s.CreateExec(t.Context(), sandbox.Exec{UID: taken.UID, Box: box})
					wantKind(t, "CreateExec with a known uid", err, errs.Conflict)
				}
				seq, err := s.CreateExec(t.Context(), sandbox.Exec{UID: sandbox.NewUID(), Box: box})
				if err != nil {
					t.Errorf("CreateExec: %v", err)
					return
				}
				mu.Lock()
				seqs[box] = append(seqs[box], seq)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	total := 0
	for box, got := range seqs {
		slices.Sort(got)
		for i, seq := range got {
			if seq != int64(i+1) {
				t.Fatalf("%s: number %d is %d", box, i+1, seq)
			}
		}
		total += len(got)
	}
	if total != workers*each {
		t.Errorf("%d execs, want %d", total, workers*each)
	}
}

func TestExecIsFinishedWithItsResult(t *testing.T) {
	s, c := fresh(t)
	b := create(t, s, box("a"))
	want := sandbox.Exec{
		UID: sandbox.NewUID(), Box: b.UID, Seq: 1, Actor: "me", Status: sandbox.ExecPending, CreatedAt: c.Now(),
		Spec: sandbox.ExecSpec{
			Argv: []string{"git"}, Kind: "git.log", Session: "s", Detail: []byte(`{"limit":3}`), NeedsSecrets: true,
		},
	}
	in := want
	in.Spec.Secrets = map[string]string{"TOKEN": "s3cret"}
	if _, err := s.CreateExec(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Exec(t.Context(), b.UID, 1); err != nil || !cmp.Equal(want, got) {
		t.Errorf("Exec: %v (-want +got):\n%s", err, cmp.Diff(want, got))
	}
	want.Status, want.Exit, want.Result = sandbox.ExecDone, &sandbox.Exit{Reason: sandbox.EndExited}, []byte(`[{"hash":"abc"}]`)
	want.StartedAt = c.advance(time.Second)
	want.FinishedAt = c.advance(time.Second)
	for _, first := range []bool{true, false} {
		if got, err := s.FinishStartedExec(t.Context(), want); err != nil || got != first {
			t.Errorf("FinishStartedExec = %v, %v", got, err)
		}
	}
	if got, err := s.Exec(t.Context(), b.UID, 1); err != nil || !cmp.Equal(want, got) {
		t.Errorf("Exec: %v (-want +got):\n%s", err, cmp.Diff(want, got))
	}
}

// TestEnvIsSealed searches the files of the database for env values of execs
// and sandboxes.
func TestEnvIsSealed(t *testing.T) {
	dir := t.TempDir()
	c := newClock()
	s := open(t, filepath.Join(dir, "cubby.db"), c)
	b := create(t, s, box("a"))
	env := map[string]string{"TOKEN": "val-3f8a"}
	in := sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID, Spec: sandbox.ExecSpec{
		Shell: "true", Env: env, Secrets: map[string]string{"PASSWORD": "val-77c1"},
	}}
	if _, err := s.CreateExec(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if got, err := s.ExecEnv(t.Context(), b.UID, 1); err != nil || !cmp.Equal(got, env) {
		t.Errorf("ExecEnv = %v, %v", got, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{"val-3f8a", "val-77c1", b.Spec.Env["SECRET"]} {
			if bytes.Contains(text, []byte(value)) {
				t.Errorf("%s has the value %s", name, value)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other, err := Open(t.Context(), Config{Path: filepath.Join(dir, "cubby.db"), Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.ExecEnv(t.Context(), b.UID, 1)
	wantKind(t, "ExecEnv with another key", err, errs.Internal)
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}

func TestNewestExecsOfAKind(t *testing.T) {
	s, _ := fresh(t)
	b := create(t, s, box("a"))
	for _, kind := range []string{"git.clone", "", "git.clone", "git.log"} {
		x := sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID, Spec: sandbox.ExecSpec{Argv: []string{"git"}, Kind: kind}}
		if _, err := s.CreateExec(t.Context(), x); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		q    ExecQuery
		want []int64
	}{
		{ExecQuery{Kind: "git.clone"}, []int64{1, 3}},
		{ExecQuery{Kind: "git.clone", Newest: true}, []int64{3, 1}},
		{ExecQuery{Kind: "git.clone", Newest: true, Limit: 1}, []int64{3}},
		{ExecQuery{Kind: "git.push"}, nil},
		{ExecQuery{Newest: true, Limit: 2, Unfinished: true}, []int64{4, 3}},
	} {
		execs, err := s.Execs(t.Context(), b.UID, tt.q)
		var got []int64
		for _, x := range execs {
			got = append(got, x.Seq)
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("Execs(%+v) = %v, %v, want %v", tt.q, got, err, tt.want)
		}
	}
}

// The first cancel of an exec stays, until the exec has ended.
func TestCancelledExecs(t *testing.T) {
	s, c := fresh(t)
	b := create(t, s, box("a"))
	var seqs []int64
	for range 3 {
		seq, err := s.CreateExec(t.Context(), sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID})
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, seq)
	}
	first := c.advance(time.Second)
	for _, seq := range seqs[1:] {
		for range 2 {
			if err := s.CancelExec(t.Context(), b.UID, seq, s.now()); err != nil {
				t.Fatal(err)
			}
		}
		c.advance(time.Second)
	}
	if _, err := s.FinishExec(t.Context(), b.UID, seqs[2], sandbox.Exit{Reason: sandbox.EndKilled}, sandbox.ExecError, s.now()); err != nil {
		t.Fatal(err)
	}
	list, err := s.CancelledExecs(t.Context())
	if err != nil || len(list) != 1 || list[0].Seq != seqs[1] || !list[0].CancelledAt.Equal(first) {
		t.Errorf("CancelledExecs = %+v, %v, want %d at %s", list, err, seqs[1], first)
	}
	wantKind(t, "CancelExec of none", s.CancelExec(t.Context(), b.UID, 99, s.now()), errs.NotFound)
}
