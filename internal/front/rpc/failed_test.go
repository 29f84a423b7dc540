package rpc_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/errs"
)

// TestFailedCreates: a create that fails is an error with the reason and leaves
// nothing that runs or takes a place; the id can be used again.
func TestFailedCreates(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.MaxSandboxes = 1 }})
	s, rest := dial(t, d), client.New(d.URL)
	down := errs.E(errs.Unavailable, "the runtime is down").Hint("start it")
	for _, tt := range []struct {
		name    string
		breaks  func(method string, err error)
		method  string
		err     error
		code    codes.Code
		says    string
		recalls string
	}{
		{"create", d.Faults.SetFail, "Create", down, codes.Unavailable, "the runtime is down: start it", "create: the runtime is down"},
		{"start", d.Faults.SetFail, "Start", down, codes.Unavailable, "the runtime is down: start it", "create: the runtime is down"},
		{"after the start", d.Faults.SetFailAfter, "Start", down, codes.Unavailable, "the runtime is down: start it", "create: the runtime is down"},
		{"what clients are not told", d.Faults.SetFail, "Start", errors.New("/var/lib/secret"), codes.Internal, "internal error", "create: internal error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := service{t, s.conn}
			id := "box-" + strings.ReplaceAll(tt.name, " ", "-")
			tt.breaks(tt.method, tt.err)
			err := s.call(bounded(t), "CreateSession", &sandboxv1.CreateSessionRequest{SessionId: &id}, &sandboxv1.CreateSessionResponse{})
			tt.breaks(tt.method, nil)
			if st := status.Convert(err); st.Code() != tt.code || st.Message() != tt.says {
				t.Errorf("CreateSession = %v, want %s: %s", err, tt.code, tt.says)
			}
			if left := s.list(); len(left) > 0 {
				t.Errorf("ListSessions = %v", left)
			}
			if uids, err := d.Driver.List(t.Context()); err != nil || len(uids) > 0 {
				t.Errorf("the driver has %v, %v", uids, err)
			}
			// What became of it is said, as by REST.
			b, err := rest.Get(t.Context(), id)
			if err != nil || b.Status != client.Failed || b.Reason != tt.recalls {
				t.Errorf("the sandbox is %s: %s, %v", b.Status, b.Reason, err)
			}
			err = s.call(bounded(t), "GetSession", &sandboxv1.GetSessionRequest{SessionId: id}, &sandboxv1.GetSessionResponse{})
			if st := status.Convert(err); st.Code() != codes.NotFound || st.Message() != "Session not found: it failed: "+tt.recalls {
				t.Errorf("GetSession = %v", err)
			}
			// There is one place, and it is free; so is the id.
			s.create(&sandboxv1.CreateSessionRequest{SessionId: &id})
			if got := s.list(); !slices.Equal(got, []string{id}) {
				t.Errorf("ListSessions = %v", got)
			}
			s.destroy(id)
		})
	}
}
