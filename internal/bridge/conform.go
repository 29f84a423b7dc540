package bridge

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// codeNoResource was the code of an unknown resource before the stateless
// revisions.
const codeNoResource = -32002

// unserved are methods of features that the bridge does not declare, as the
// daemon does not. The SDK would answer some of them with empty lists.
var unserved = []string{
	"prompts/list", "prompts/get", "logging/setLevel",
}

// conform makes errors those of the revision that this side's client speaks,
// which may not be the one that the bridge speaks with the daemon.
func conform(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if slices.Contains(unserved, method) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + method}
		}
		res, err := next(ctx, method, req)
		var wire *jsonrpc.Error
		if read, ok := req.(*sdk.ReadResourceRequest); ok && errors.As(err, &wire) && strings.HasPrefix(wire.Message, noSuchResource) {
			code := int64(jsonrpc.CodeInvalidParams)
			if read.ProtocolVersion() < statelessProtocol {
				code = codeNoResource
			}
			return nil, &jsonrpc.Error{Code: code, Message: wire.Message, Data: wire.Data}
		}
		return res, err
	}
}

// noSuchResource begins the message for a resource that is not there.
var noSuchResource = sdk.ResourceNotFoundError("").Error()
