package relay

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// A visitor that left kept its connection to an app that never answers.
func TestJoinEndsWhenASideHasLeft(t *testing.T) {
	a, left := connected(t, "unix")
	b, right := connected(t, "tcp")
	done := make(chan struct{})
	go func() {
		defer close(done)
		Join(left, right)
	}()
	if _, err := io.WriteString(a, "question"); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(b)
	if string(got) != "question" || err != nil {
		t.Errorf("the app got %q, %v", got, err)
	}
	<-done // and the app never closed
}

// So did one that left while the app did not read what it sent.
func TestJoinEndsWhenASideHasLeftThatIsNotReadFrom(t *testing.T) {
	a, left := connected(t, "unix")
	_, right := connected(t, "tcp")
	done := make(chan struct{})
	go func() {
		defer close(done)
		Join(left, right)
	}()
	// Until nothing goes on its way any more.
	for sent := 1; sent > 0; {
		if err := a.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		sent, _ = a.Write(make([]byte, 1<<20))
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
}

// One that has only ended what it sends has its answer, however late, as long as
// anything comes.
func TestJoinEndsWhenNothingFlowsInTheDirectionThatIsLeft(t *testing.T) {
	a, left := connected(t, "tcp")
	app, right := connected(t, "tcp")
	visitor := a.(*net.TCPConn)
	looks := make(chan time.Time)
	w := NewWatch(left, right)
	w.quiet, w.looks = 4, looks // the last look of a round may be before its byte
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.join()
	}()
	if err := visitor.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := app.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the app reads %v", err)
	}
	for range 5 {
		looks <- time.Time{}
		looks <- time.Time{}
		if _, err := app.Write([]byte(".")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(visitor, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		looks <- time.Time{}
	}
	for ended := false; !ended; {
		select {
		case looks <- time.Time{}:
		case <-over:
			ended = true
		}
	}
}
