package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Terminal is one that is open.
type Terminal struct {
	Name      string    `json:"name"`
	Seq       int64     `json:"seq" doc:"The command that runs in it."`
	Cmd       string    `json:"cmd" doc:"\"\" is an interactive shell."`
	User      string    `json:"user"`
	Cols      int       `json:"cols"`
	Rows      int       `json:"rows"`
	CreatedAt time.Time `json:"created_at"`
	Viewers   int       `json:"viewers" doc:"Who looks at it now."`
}

// TerminalList is the open terminals of a sandbox.
type TerminalList struct {
	Terminals []Terminal `json:"terminals" nullable:"false"`
}

type terminalInput struct {
	IDInput
	Name string `path:"name"`
}

func (d *door) terminalRoutes() {
	register(d, operation{
		id: "list-terminals", method: http.MethodGet, path: "/v1/sandboxes/{id}/terminals", tag: "terminals", summary: "List open terminals",
	}, func(ctx context.Context, in *IDInput) (*struct{ Body TerminalList }, error) {
		open, err := d.Core.Terminals().List(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		out := TerminalList{Terminals: make([]Terminal, len(open))}
		for i, t := range open {
			out.Terminals[i] = Terminal{
				Name: t.Name, Seq: t.Seq, Cmd: t.Shell, User: t.User, Cols: int(t.Size.Cols), Rows: int(t.Size.Rows),
				CreatedAt: t.CreatedAt.UTC(), Viewers: t.Viewers,
			}
		}
		return &struct{ Body TerminalList }{out}, nil
	})
	register(d, operation{
		id: "close-terminal", method: http.MethodDelete, path: "/v1/sandboxes/{id}/terminals/{name}", tag: "terminals",
		summary: "Kill a terminal's program and everything that descends from it", status: http.StatusNoContent,
	}, func(ctx context.Context, in *terminalInput) (*struct{}, error) {
		return nil, d.Core.Terminals().Close(ctx, in.ID, in.Name)
	})
	d.OpenAPI.AddOperation(d.terminalOperation())
}

// terminalOperation describes the WebSocket, which is a door of its own.
func (d *door) terminalOperation() *huma.Operation {
	parameter := func(name, kind, doc string) *huma.Param {
		return &huma.Param{Name: name, In: "query", Description: doc, Schema: &huma.Schema{Type: kind}}
	}
	return &huma.Operation{
		OperationID: "open-terminal", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/terminal", Tags: []string{"terminals"},
		Summary: "Open a terminal or attach to it, as a WebSocket",
		Description: "Binary messages are keys and output. The first message is {\"type\":\"attached\",name,seq,offset,new}: the offset is that of the first byte of output that follows. " +
			"The client says {\"type\":\"resize\",cols,rows}. {\"type\":\"skipped\",bytes,offset} tells of output that is not kept any more; {\"type\":\"exit\",exit_code,reason,message} is the last message. " +
			"The subprotocol is cubby.terminal.v1; a page gives its token as a further one, cubby.token. followed by the token in unpadded base64url.",
		Parameters: []*huma.Param{
			{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}},
			parameter("name", huma.TypeString, "Which terminal; default main. One that is not open is made."),
			parameter("cols", huma.TypeInteger, "With rows, its size; of a new one 80 × 24 by default."),
			parameter("rows", huma.TypeInteger, ""),
			parameter("cmd", huma.TypeString, "What a new one runs; default an interactive shell."),
			parameter("user", huma.TypeString, "Of a new one; default the sandbox's."),
			parameter("cwd", huma.TypeString, "Of a new one; default /workspace."),
			parameter("after", huma.TypeInteger, "The offset to begin at, with seq; default about 256 KiB before the end."),
			parameter("seq", huma.TypeInteger, "Exactly the terminal whose attached message had it, open or ended, instead of one by name."),
		},
		Responses: map[string]*huma.Response{
			"101":     {Description: "A viewer of the terminal"},
			"default": d.ErrorResponse(),
		},
	}
}
