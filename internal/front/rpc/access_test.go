package rpc_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/api/gen/sandbox/v1/sandboxv1connect"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

func withTokens(c *config.Config) { c.Tokens = "me:secret" }

// Without a right token no call does anything, in every protocol.
func TestAuthentication(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Config: withTokens})
	s := dial(t, d)
	methods := sandboxv1.File_sandbox_v1_sandbox_proto.Services().Get(0).Methods()
	for i := range methods.Len() {
		name := string(methods.Get(i).Name())
		var err error
		if methods.Get(i).IsStreamingServer() {
			err = s.stream(bounded(t), &sandboxv1.ExecStreamRequest{SessionId: "a", Command: "true"}, func(*sandboxv1.ExecStreamResponse) {})
		} else {
			err = s.call(bounded(t), name, &emptypb.Empty{}, &emptypb.Empty{})
		}
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s without a token = %v", name, err)
		}
	}
	with := func(pairs []string) error {
		ctx := metadata.NewOutgoingContext(bounded(t), metadata.Pairs(pairs...))
		return s.call(ctx, "ListSessions", &sandboxv1.ListSessionsRequest{}, &sandboxv1.ListSessionsResponse{})
	}
	for _, pairs := range [][]string{{"authorization", "Bearer wrong"}, {"authorization", "Basic secret"}, {"x-api-key", "wrong"}, {"x-sandbox-secret", "wrong"}, {"x-token", "secret"}} {
		if err := with(pairs); status.Code(err) != codes.Unauthenticated || strings.Contains(err.Error(), "secret\"") {
			t.Errorf("with %v = %v, want unauthenticated", pairs, err)
		}
	}
	for _, pairs := range [][]string{{"authorization", "Bearer secret"}, {"authorization", "bearer secret"}, {"x-api-key", "secret"}, {"x-sandbox-secret", "secret"}} {
		if err := with(pairs); err != nil {
			t.Errorf("with %v = %v", pairs, err)
		}
	}
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	for name, options := range protocols() {
		c := sandboxv1connect.NewSandboxServiceClient(&http.Client{Transport: transport}, d.URL, options...)
		for token, want := range map[string]bool{"": false, "wrong": false, "secret": true} {
			req := connect.NewRequest(&sandboxv1.ListSessionsRequest{})
			if token != "" {
				req.Header().Set("Authorization", "Bearer "+token)
			}
			_, err := c.ListSessions(bounded(t), req)
			if want != (err == nil) || err != nil && connect.CodeOf(err) != connect.CodeUnauthenticated {
				t.Errorf("%s with %q = %v", name, token, err)
			}
		}
	}
}

// Health is for everybody, as /healthz is; what the service consists of is for
// those who may use it.
func TestHealthAndReflection(t *testing.T) {
	s := dial(t, daemontest.Start(t, daemontest.Options{Config: withTokens}))
	health := healthpb.NewHealthClient(s.conn)
	for service, want := range map[string]codes.Code{"": codes.OK, "sandbox.v1.SandboxService": codes.OK, "other": codes.NotFound} {
		res, err := health.Check(bounded(t), &healthpb.HealthCheckRequest{Service: service})
		if status.Code(err) != want || err == nil && res.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q = %v, %v", service, res, err)
		}
	}
	if _, err := health.Check(bounded(t), &healthpb.HealthCheckRequest{Service: strings.Repeat("x", 1<<20)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("health of a long name = %v", err)
	}
	watch, err := health.Watch(bounded(t), &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("Watch without a token = %v", err)
	}
	if _, err := services(bounded(t), s); status.Code(err) != codes.Unauthenticated {
		t.Errorf("reflection without a token = %v", err)
	}
	known, err := services(metadata.NewOutgoingContext(bounded(t), metadata.Pairs("x-api-key", "secret")), s)
	if err != nil || len(known) != 2 || known[0].GetName() != "sandbox.v1.SandboxService" || known[1].GetName() != "grpc.health.v1.Health" {
		t.Errorf("reflection = %v, %v", known, err)
	}
}

// services asks by reflection what there is.
func services(ctx context.Context, s service) ([]*reflectionpb.ServiceResponse, error) {
	st, err := reflectionpb.NewServerReflectionClient(s.conn).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	if err := st.Send(ask); err != nil && !errors.Is(err, io.EOF) { // Recv has the reason
		return nil, err
	}
	res, err := st.Recv()
	if err != nil {
		return nil, err
	}
	if err := st.CloseSend(); err != nil {
		return nil, err
	}
	for err == nil {
		_, err = st.Recv()
	}
	return res.GetListServicesResponse().GetService(), nil
}
