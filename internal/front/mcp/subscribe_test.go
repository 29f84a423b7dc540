package mcp_test

import (
	"context"
	"slices"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// TestSubscribeToARunningCommand: a client hears of new output and of the end, reads it
// again, and hears nothing when it has unsubscribed.
func TestSubscribeToARunningCommand(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	eras(t, func(t *testing.T, version string) {
		updated := make(chan string, 100)
		c := client{url: d.URL, version: version, thread: "mine"}
		c.options.ResourceUpdatedHandler = func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI }
		s := c.connect(t)
		if caps := s.InitializeResult().Capabilities; caps.Resources == nil || !caps.Resources.Subscribe || caps.Completions == nil || caps.Prompts != nil {
			t.Errorf("the capabilities are %+v", caps)
		}
		id := begin(t, s)
		defer good(t, s, "stop_session", object{"session_id": id})
		good(t, s, "start_command", object{"session_id": id, "command": "until [ -e go ]; do sleep 0.05; done; echo first; until [ -e end ]; do sleep 0.05; done; echo last"})
		uri := "sandbox-output://" + id + "/1/stdout"
		if err := s.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}); err != nil {
			t.Fatal(err)
		}
		read := func() string {
			res, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
			if err != nil {
				t.Fatal(err)
			}
			return res.Contents[0].Text
		}
		comes := func(want string) {
			t.Helper()
			for {
				select {
				case got := <-updated:
					if got != uri {
						t.Fatalf("%s was updated", got)
					}
				case <-time.After(time.Minute):
					t.Fatalf("no update; the output is %q", read())
				}
				if read() == want {
					return
				}
			}
		}
		good(t, s, "write_file", object{"session_id": id, "path": "go", "content": ""})
		comes("first\n")
		good(t, s, "write_file", object{"session_id": id, "path": "end", "content": ""})
		comes("first\nlast\n")
		for _, bad := range []string{"sandbox://" + id + "/workspace/go", "sandbox-output://" + id + "/1/0", "sandbox-output://" + id + "/99/stdout", "sandbox-output://00000000/1/stdout", "x"} {
			if err := s.Subscribe(t.Context(), &sdk.SubscribeParams{URI: bad}); err == nil && version != modern {
				t.Errorf("%s can be subscribed to", bad)
			}
		}
		if err := s.Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: uri}); err != nil {
			t.Error(err)
		}
	})
}

// TestCompleteTemplates completes the variables of resource templates.
func TestCompleteTemplates(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	eras(t, func(t *testing.T, version string) {
		s := client{url: d.URL, version: version}.connect(t)
		id := begin(t, s)
		defer good(t, s, "stop_session", object{"session_id": id})
		good(t, s, "execute_terminal", object{"session_id": id, "command": "mkdir -p data; touch data/a.csv data/b.csv draft"})
		good(t, s, "execute_terminal", object{"session_id": id, "command": "true"})
		complete := func(uri, name, value string, known map[string]string) []string {
			t.Helper()
			res, err := s.Complete(t.Context(), &sdk.CompleteParams{
				Ref: &sdk.CompleteReference{Type: "ref/resource", URI: uri}, Argument: sdk.CompleteParamsArgument{Name: name, Value: value},
				Context: &sdk.CompleteContext{Arguments: known},
			})
			if err != nil {
				t.Fatal(err)
			}
			return res.Completion.Values
		}
		const file, output = "sandbox://{session_id}/{+path}", "sandbox-output://{session_id}/{command_id}/{name}"
		here := map[string]string{"session_id": id, "command_id": "1"}
		for _, tt := range []struct {
			uri, name, value string
			known            map[string]string
			want             []string
		}{
			{file, "session_id", id[:3], nil, []string{id}},
			{output, "session_id", "", nil, []string{id}},
			{file, "session_id", "zz", nil, nil},
			{file, "path", "workspace/d", here, []string{"workspace/data/", "workspace/draft"}},
			{file, "path", "/workspace/data/", here, []string{"workspace/data/a.csv", "workspace/data/b.csv"}},
			{file, "path", "no/such", here, nil},
			{file, "path", "../../", map[string]string{"session_id": "00000000"}, nil},
			{output, "command_id", "", here, []string{"2", "1"}},
			{output, "name", "std", here, []string{"stdout", "stderr"}},
			{output, "name", "", nil, nil},
		} {
			if got := complete(tt.uri, tt.name, tt.value, tt.known); !slices.Equal(got, tt.want) && len(got)+len(tt.want) > 0 {
				t.Errorf("%s of %s with %q is %q, want %q", tt.name, tt.uri, tt.value, got, tt.want)
			}
		}
		if got := complete(file, "path", "", here); !slices.Contains(got, "usr/") {
			t.Errorf("at the top there is %q", got)
		}
		if _, err := s.Complete(t.Context(), &sdk.CompleteParams{
			Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: "x"}, Argument: sdk.CompleteParamsArgument{Name: "a"},
		}); err == nil {
			t.Error("a prompt is completed")
		}
	})
}
