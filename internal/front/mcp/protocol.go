package mcp

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// ToolsHeader says which tools a client wants: "six" are those of
	// sandbox-agent alone.
	ToolsHeader = "Cubby-Tools"
	onlySix     = "six"

	// codeNoResource was the code of an unknown resource before the stateless
	// revisions.
	codeNoResource = -32002
)

// unserved are methods of features that the server does not declare. The SDK
// would answer some of them with empty lists, and clients would take the
// feature for there.
var unserved = []string{
	"prompts/list", "prompts/get", "logging/setLevel",
}

// conform makes the SDK's answers those of the revision that a client speaks,
// and of the tools that it wants.
func conform(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if slices.Contains(unserved, method) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + method}
		}
		six := wantsSix(req.GetExtra())
		if p, ok := req.GetParams().(*sdk.CallToolParamsRaw); ok && six && !slices.Contains(sixTools, p.Name) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown tool: " + p.Name}
		}
		if extra := req.GetExtra(); method == "subscriptions/listen" && extra != nil {
			// The SDK makes subscriptions of it that do not have the request's header.
			ctx = context.WithValue(ctx, listensFor{}, extra.Header.Get(ThreadHeader))
		}
		res, err := next(ctx, method, req)
		if method == "resources/read" {
			err = noResource(req, err)
		}
		if !six || err != nil {
			return res, err
		}
		switch res := res.(type) {
		case *sdk.ListToolsResult:
			res.Tools = slices.DeleteFunc(res.Tools, func(t *sdk.Tool) bool { return !slices.Contains(sixTools, t.Name) })
		case *sdk.InitializeResult:
			res.Instructions = instructionsSix
		case *sdk.DiscoverResult:
			res.Instructions = instructionsSix
		}
		return res, nil
	}
}

// listensFor is the key of the conversation that a request to listen names.
type listensFor struct{}

func wantsSix(extra *sdk.RequestExtra) bool {
	return extra != nil && extra.Header.Get(ToolsHeader) == onlySix
}

// noResource gives an unknown resource the code that it has in the client's
// revision.
func noResource(req sdk.Request, err error) error {
	var wire *jsonrpc.Error
	versioned, ok := req.(interface{ ProtocolVersion() string })
	if !ok || versioned.ProtocolVersion() >= stateless || !errors.As(err, &wire) || !strings.HasPrefix(wire.Message, noSuchResource) {
		return err
	}
	return &jsonrpc.Error{Code: codeNoResource, Message: wire.Message, Data: wire.Data}
}

// noSuchResource begins the message for a resource that is not there.
var noSuchResource = sdk.ResourceNotFoundError("").Error()

// caching says who may keep what: the lists are the same for everybody, and
// files are their session's.
func caching(_ context.Context, req sdk.Request, c *sdk.Cacheable) {
	if _, ok := req.GetParams().(*sdk.ReadResourceParams); ok {
		c.CacheScope, c.TTLMs = "private", 0
	}
}
