package rpc

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Every kind of error has a status, which the page names beside the REST API's.
func TestErrorTable(t *testing.T) {
	page, err := os.ReadFile("../../../docs/grpc.md")
	if err != nil {
		t.Fatal(err)
	}
	for kind, row := range front.Table {
		code, ok := codes[kind]
		if !ok {
			t.Errorf("%s has no status", kind)
			continue
		}
		if status := regexp.MustCompile("(?m)^\\| `" + row.Code + "` \\| `([A-Z_]+)` \\|").FindSubmatch(page); status == nil || string(status[1]) != grpcName(code) {
			t.Errorf("docs/grpc.md has %q for %s, want %s", status, row.Code, grpcName(code))
		}
		if got := connect.CodeOf(statusOf(errs.E(kind, "x"))); got != code {
			t.Errorf("%s is %s, want %s", kind, got, code)
		}
	}
	if len(codes) != len(front.Table) {
		t.Errorf("%d kinds have a status, and there are %d", len(codes), len(front.Table))
	}
}

// grpcName is a status as gRPC spells it.
func grpcName(c connect.Code) string {
	if c == connect.CodeCanceled {
		return "CANCELLED"
	}
	return strings.ToUpper(c.String())
}

func TestStreamEnd(t *testing.T) {
	code := func(n int) *int { return &n }
	for _, tt := range []struct {
		exit sandbox.Exit
		want *sandboxv1.ExecStreamResponse
	}{
		{sandbox.Exit{Reason: sandbox.EndExited, Code: code(0)}, &sandboxv1.ExecStreamResponse{Type: "exit", ExitCode: proto.Int32(0)}},
		{sandbox.Exit{Reason: sandbox.EndExited, Code: code(7)}, &sandboxv1.ExecStreamResponse{Type: "exit", ExitCode: proto.Int32(7)}},
		{sandbox.Exit{Reason: sandbox.EndTimeout}, &sandboxv1.ExecStreamResponse{Type: "error", Data: "Command timed out"}},
		{sandbox.Exit{Reason: sandbox.EndOOM, Message: "out of memory"}, &sandboxv1.ExecStreamResponse{Type: "error", Data: "cubby: out of memory"}},
		{sandbox.Exit{Reason: sandbox.EndDestroyed}, &sandboxv1.ExecStreamResponse{Type: "error", Data: "cubby: the command did not end by itself: sandbox_destroyed"}},
	} {
		if got := streamEnd(&tt.exit); !proto.Equal(got, tt.want) {
			t.Errorf("streamEnd(%+v) = %v, want %v", tt.exit, got, tt.want)
		}
	}
}

// A stream lasts as long as its caller's deadline, and 300 seconds without one.
func TestStreamLimit(t *testing.T) {
	if got := streamLimit(t.Context()); got != 300*time.Second {
		t.Errorf("without a deadline %s", got)
	}
	for _, tt := range []struct{ left, atLeast, atMost time.Duration }{
		{time.Hour, time.Minute, time.Hour},
		{-time.Hour, time.Millisecond, time.Millisecond},
		{10 * sandbox.MaxDuration, sandbox.MaxDuration, sandbox.MaxDuration},
	} {
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(tt.left))
		if got := streamLimit(ctx); got < tt.atLeast || got > tt.atMost {
			t.Errorf("with %s left %s", tt.left, got)
		}
		cancel()
	}
}

// A character that comes in pieces leaves whole, and what is none leaves as the
// replacement character.
func TestCharacters(t *testing.T) {
	for _, tt := range []struct {
		pieces []string
		want   []string
		rest   string
	}{
		{[]string{"a\xe2", "\x82", "\xacb"}, []string{"a", "", "€b"}, ""},
		{[]string{"\xf0\x9f", "\x98\x80"}, []string{"", "😀"}, ""},
		{[]string{"a\xffb", "\x80"}, []string{"a\uFFFDb", "\uFFFD"}, ""},
		{[]string{"end\xe2\x82"}, []string{"end"}, "\uFFFD"},
	} {
		var c characters
		for i, p := range tt.pieces {
			if got := c.whole([]byte(p)); got != tt.want[i] {
				t.Errorf("%q: piece %d = %q, want %q", tt.pieces, i, got, tt.want[i])
			}
		}
		if got := c.rest(); got != tt.rest {
			t.Errorf("%q: rest = %q, want %q", tt.pieces, got, tt.rest)
		}
	}
}

// TestReplacedBytesAreCounted: what is not UTF-8 takes more in an answer than
// the command printed.
func TestReplacedBytesAreCounted(t *testing.T) {
	for _, b := range []string{"", "text", "é€😀", "\xff", "a\xff", "\xff\xfe\xfd", "a\xff\xffb\xc3", "\uFFFD\xff\uFFFD", "é\xc3(\xa9€\xe2\x82"} {
		if got, want := replaced([]byte(b)), int64(len(text([]byte(b)))-len(b)); got != want {
			t.Errorf("%q is %d bytes longer, want %d", b, got, want)
		}
	}
}
