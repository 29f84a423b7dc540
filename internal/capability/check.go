package capability

import (
	"context"
	"net/url"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Call is Unsupported for a call of the guest service that the agent lacks something
// for. Its other errors are those of [Known.Require].
func (k *Known) Call(ctx context.Context, via connect.HTTPClient, procedure string, request any) error {
	all, err := ofCall(procedure, request)
	if err != nil {
		return err
	}
	return k.requireAll(ctx, via, all)
}

// Raw is [Known.Call] for a request of a raw path.
func (k *Known) Raw(ctx context.Context, via connect.HTTPClient, path string, q url.Values) error {
	all, err := ofRaw(path, q)
	if err != nil {
		return err
	}
	return k.requireAll(ctx, via, all)
}

func (k *Known) requireAll(ctx context.Context, via connect.HTTPClient, all []sandbox.AgentCapability) error {
	for _, c := range all {
		if err := k.Require(ctx, via, c); err != nil {
			return err
		}
	}
	return nil
}

// ofCall is what a call needs, with the fields that are set in it.
func ofCall(procedure string, request any) (all []sandbox.AgentCapability, err error) {
	need, known := calls[procedure]
	if !known {
		return nil, errs.E(errs.Internal, "the call %s has no entry in the table of capabilities", procedure)
	}
	all = need.add(all)
	if m, ok := request.(proto.Message); ok {
		all = ofFields(m.ProtoReflect(), all)
	}
	return all, nil
}

func ofFields(m protoreflect.Message, all []sandbox.AgentCapability) []sandbox.AgentCapability {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		all = fields[f.FullName()].add(all)
		switch {
		case f.Kind() != protoreflect.MessageKind || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				all = ofFields(v.List().Get(i).Message(), all)
			}
		default:
			all = ofFields(v.Message(), all)
		}
		return true
	})
	return all
}

func ofRaw(path string, q url.Values) (all []sandbox.AgentCapability, err error) {
	for name := range q {
		need, known := parameters[path+"?"+name]
		if !known {
			return nil, errs.E(errs.Internal, "the parameter %s of %s has no entry in the table of capabilities", name, path)
		}
		all = need.add(all)
	}
	return all, nil
}

// add adds what the agent is not to be asked without.
func (n Need) add(all []sandbox.AgentCapability) []sandbox.AgentCapability {
	if n.Capability == "" || n.Without != "" {
		return all
	}
	return append(all, n.Capability)
}

// Interceptor checks every call of a client before it is made. The agent is asked what
// it has over via.
func Interceptor(k *Known, via connect.HTTPClient) connect.Interceptor { return interceptor{k, via} }

type interceptor struct {
	known *Known
	via   connect.HTTPClient
}

func (i interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if err := i.known.Call(ctx, i.via, r.Spec().Procedure, r.Any()); err != nil {
			return nil, err
		}
		return next(ctx, r)
	}
}

func (i interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, s connect.Spec) connect.StreamingClientConn {
		return &checkedConn{StreamingClientConn: next(ctx, s), ctx: ctx, i: i}
	}
}

func (interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// checkedConn is the connection of a stream. One whose request is refused is not used:
// to close it would send a request without a message.
type checkedConn struct {
	connect.StreamingClientConn

	ctx     context.Context //nolint:containedctx // of the call
	i       interceptor
	refused bool
}

func (c *checkedConn) Send(m any) error {
	if err := c.i.known.Call(c.ctx, c.i.via, c.Spec().Procedure, m); err != nil {
		c.refused = true
		return err
	}
	return c.StreamingClientConn.Send(m)
}

func (c *checkedConn) CloseRequest() error {
	if c.refused {
		return nil
	}
	return c.StreamingClientConn.CloseRequest()
}

func (c *checkedConn) CloseResponse() error {
	if c.refused {
		return nil
	}
	return c.StreamingClientConn.CloseResponse()
}
