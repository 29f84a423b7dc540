package mcp

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/tools"
)

const (
	// mostValues is how many values an answer has; the protocol allows no more.
	mostValues = 100
	// mostPages bounds how many commands are looked through for their numbers.
	mostPages = 20

	fileTemplate   = fileScheme + "://{session_id}/{+path}"
	outputTemplate = outputScheme + "://{session_id}/{command_id}/{name}"
)

// complete proposes values for the variables of the resource templates: sessions of the
// conversation, files in them, commands and their outputs. What cannot be looked at
// without waking a session has no values.
func (d *Door) complete(ctx context.Context, req *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
	ref, arg := req.Params.Ref, req.Params.Argument
	if ref.Type != "ref/resource" || ref.URI != fileTemplate && ref.URI != outputTemplate {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no such resource template to complete"}
	}
	known := map[string]string{}
	if req.Params.Context != nil {
		known = req.Params.Context.Arguments
	}
	var values []string
	var err error
	if of := thread(ctx, req.Extra); arg.Name == "session_id" {
		values, err = d.completeSession(ctx, of, arg.Value)
	} else if b, missing := tools.FindSession(ctx, d.core, known["session_id"], of); missing == nil {
		switch {
		case ref.URI == fileTemplate && arg.Name == "path":
			values, err = d.completePath(ctx, b, arg.Value)
		case ref.URI == outputTemplate && arg.Name == "command_id":
			values, err = d.completeCommand(ctx, b, arg.Value)
		case ref.URI == outputTemplate && arg.Name == "name":
			values = startingWith(arg.Value, []string{sandbox.Stdout.String(), sandbox.Stderr.String()})
		}
	}
	if err != nil {
		return nil, d.resourceError(ctx, ref.URI, err)
	}
	res := &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{}, Total: len(values), HasMore: len(values) > mostValues}}
	res.Completion.Values = append(res.Completion.Values, values[:min(len(values), mostValues)]...)
	return res, nil
}

func startingWith(prefix string, values []string) []string {
	return slices.DeleteFunc(values, func(v string) bool { return !strings.HasPrefix(v, prefix) })
}

func (d *Door) completeSession(ctx context.Context, thread, prefix string) ([]string, error) {
	boxes, err := d.core.Threads().Sandboxes(ctx, thread)
	ids := make([]string, len(boxes))
	for i, b := range boxes {
		ids[i] = string(b.ID)
	}
	return startingWith(prefix, ids), err
}

// completePath proposes what is in the directory of a path that is being typed.
// Directories end with a slash.
func (d *Door) completePath(ctx context.Context, b sandbox.Sandbox, typed string) ([]string, error) {
	if b.State != sandbox.Running && b.State != sandbox.Stopped {
		return nil, nil
	}
	dir, prefix := path.Split("/" + strings.TrimPrefix(typed, "/"))
	var values []string
	for f, err := range d.core.Files().List(ctx, string(b.ID), dir, false) {
		if err != nil {
			return nil, nil //nolint:nilerr // a directory that is not there has nothing to propose
		}
		name := path.Base(f.Path)
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		value := strings.TrimPrefix(path.Join(dir, name), "/")
		if f.Type == sandbox.Directory {
			value += "/"
		}
		if values = append(values, value); len(values) > mostValues {
			break
		}
	}
	slices.Sort(values)
	return values, nil
}

// completeCommand proposes the numbers of commands, newest first.
func (d *Door) completeCommand(ctx context.Context, b sandbox.Sandbox, prefix string) ([]string, error) {
	var numbers []string
	last := int64(0)
	for range mostPages {
		list, err := d.core.Execs().List(ctx, string(b.ID), live.ExecQuery{AfterSeq: last, Limit: 1000})
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			break
		}
		for _, x := range list {
			last = x.Seq
			if n := strconv.FormatInt(x.Seq, 10); strings.HasPrefix(n, prefix) {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Reverse(numbers)
	return numbers, nil
}
