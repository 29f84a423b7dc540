package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/cubbyhq/cubby/internal/task"
)

// fakeAgent is the command of an agent of the tests, by its name.
func fakeAgent(t *testing.T, name string) task.Agent {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return task.Agent{Name: "fake", Protocol: task.ACP, Command: []string{self}, Env: map[string]string{roleEnv: "agent " + name}}
}

// actAgent is an agent of the tests, by its name.
func actAgent(name string) int {
	switch name {
	case "garbage":
		for {
			if _, err := fmt.Println("Welcome! This is no protocol."); err != nil {
				return 1
			}
		}
	case "lines":
		fmt.Println(`{"type":"step_start","sessionID":"ses_1","part":{"type":"step-start"}}`)
		fmt.Printf(`{"type":"text","sessionID":"ses_1","part":{"id":"p1","type":"text","text":%q}}`+"\n", os.Args[1])
		fmt.Println("plain text")
		return 0
	}
	a := &fake{name: name, cancelled: make(chan struct{}, 1)}
	ready := make(chan struct{})
	a.conn = acp.NewAgentSideConnection(a, os.Stdout, gate{ready, os.Stdin})
	close(ready)
	if name == "deaf" {
		signal.Ignore(syscall.SIGTERM)
		select {}
	}
	<-a.conn.Done()
	return 0
}

// gate is a reader that waits: the connection reads before it is known.
type gate struct {
	ready <-chan struct{}
	io.Reader
}

func (g gate) Read(p []byte) (int, error) {
	<-g.ready
	return g.Reader.Read(p)
}

type fake struct {
	name      string
	cwd       string
	conn      *acp.AgentSideConnection
	cancelled chan struct{}
}

const fakeSession = "session-7"

func (a *fake) Authenticate(context.Context, acp.AuthenticateRequest) (acp.AuthenticateResponse, error) {
	if a.name != "auth" {
		return acp.AuthenticateResponse{}, errors.New("nobody asked")
	}
	return acp.AuthenticateResponse{}, nil
}

func (a *fake) Initialize(context.Context, acp.InitializeRequest) (acp.InitializeResponse, error) {
	return acp.InitializeResponse{ProtocolVersion: 1, AgentCapabilities: acp.AgentCapabilities{LoadSession: a.name == "load"}}, nil
}

func (a *fake) Cancel(context.Context, acp.CancelNotification) error {
	if a.name != "stubborn" {
		a.cancelled <- struct{}{}
	}
	return nil
}

func (a *fake) NewSession(_ context.Context, p acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	a.cwd = p.Cwd
	return acp.NewSessionResponse{SessionId: fakeSession}, nil
}

func (a *fake) LoadSession(ctx context.Context, p acp.LoadSessionRequest) (acp.LoadSessionResponse, error) {
	a.cwd = p.Cwd
	a.say("an old story")
	return acp.LoadSessionResponse{}, nil
}

func (a *fake) UnstableSetSessionModel(_ context.Context, p acp.UnstableSetSessionModelRequest) (acp.UnstableSetSessionModelResponse, error) {
	if p.ModelId != "good" {
		return acp.UnstableSetSessionModelResponse{}, errors.New("there is no such model")
	}
	return acp.UnstableSetSessionModelResponse{}, nil
}

func (*fake) SetSessionMode(context.Context, acp.SetSessionModeRequest) (acp.SetSessionModeResponse, error) {
	return acp.SetSessionModeResponse{}, nil
}

func (*fake) CloseSession(context.Context, acp.CloseSessionRequest) (acp.CloseSessionResponse, error) {
	return acp.CloseSessionResponse{}, nil
}

func (*fake) ListSessions(context.Context, acp.ListSessionsRequest) (acp.ListSessionsResponse, error) {
	return acp.ListSessionsResponse{}, nil
}

func (*fake) SetSessionConfigOption(context.Context, acp.SetSessionConfigOptionRequest) (acp.SetSessionConfigOptionResponse, error) {
	return acp.SetSessionConfigOptionResponse{}, nil
}

func (*fake) ResumeSession(context.Context, acp.ResumeSessionRequest) (acp.ResumeSessionResponse, error) {
	return acp.ResumeSessionResponse{}, errors.New("it cannot")
}

func (a *fake) update(u acp.SessionUpdate) {
	_ = a.conn.SessionUpdate(context.Background(), acp.SessionNotification{SessionId: fakeSession, Update: u})
}

func (a *fake) say(text string) { a.update(acp.UpdateAgentMessageText(text)) }

func (a *fake) write(name, text string) {
	if err := os.WriteFile(filepath.Join(a.cwd, name), []byte(text), 0o600); err != nil {
		panic(err)
	}
}

// leave starts a program that goes on without its parent, in a session of its own.
func leave() {
	cmd := exec.Command("setsid", "sh", "-c", "sleep 1000 </dev/null >/dev/null 2>&1 &")
	if err := cmd.Run(); err != nil {
		panic(err)
	}
}

func (a *fake) Prompt(_ context.Context, p acp.PromptRequest) (acp.PromptResponse, error) {
	stop := acp.StopReasonEndTurn
	switch {
	case a.name == "work":
		a.update(acp.UpdateAgentThoughtText("I think "))
		a.update(acp.UpdateAgentThoughtText("so."))
		a.say("Hel")
		a.say("lo.")
		a.update(acp.StartToolCall("call-1", "Write a file", acp.WithStartKind(acp.ToolKindEdit), acp.WithStartStatus(acp.ToolCallStatusPending),
			acp.WithStartRawInput(map[string]any{"path": filepath.Join(a.cwd, "hello.txt")})))
		a.write("hello.txt", "hello\n")
		for range 2 {
			a.update(acp.UpdateToolCall("call-1", acp.WithUpdateStatus(acp.ToolCallStatusInProgress)))
		}
		a.update(acp.UpdateToolCall("call-1", acp.WithUpdateStatus(acp.ToolCallStatusCompleted),
			acp.WithUpdateContent([]acp.ToolCallContent{acp.ToolContent(acp.TextBlock("it is written"))})))
		a.update(acp.UpdatePlan(acp.PlanEntry{Content: "one step", Status: acp.PlanEntryStatusCompleted, Priority: acp.PlanEntryPriorityHigh}))
		a.say("Done.")
		return acp.PromptResponse{StopReason: stop, Usage: &acp.Usage{InputTokens: 10, OutputTokens: 2, TotalTokens: 12}}, nil
	case a.name == "secret":
		secret := os.Getenv("MY_TOKEN")
		for _, piece := range []string{"It is ", secret[:3], secret[3:7], secret[7:] + "!", " And ", secret[:5], "."} {
			a.say(piece)
		}
		a.update(acp.StartToolCall("call-1", "Show "+secret, acp.WithStartRawInput(map[string]any{"command": "echo " + secret})))
		a.update(acp.UpdateToolCall("call-1", acp.WithUpdateStatus(acp.ToolCallStatusCompleted), acp.WithUpdateRawOutput(map[string]any{"output": escaped(secret)})))
		a.update(acp.UpdatePlan(acp.PlanEntry{Content: "tell " + secret}))
		a.write("file-"+strings.ReplaceAll(secret, "/", "_"), "x\n")
		a.write("secret.txt", "a\n"+secret+"\n")
		fmt.Fprint(os.Stderr, secret[:4])
		fmt.Fprintln(os.Stderr, secret[4:])
	case a.name == "ask":
		answer, err := a.conn.RequestPermission(context.Background(), acp.RequestPermissionRequest{
			SessionId: fakeSession,
			ToolCall:  acp.ToolCallUpdate{ToolCallId: "call-1", Title: acp.Ptr("Remove all"), RawInput: map[string]any{"command": "rm -rf ."}},
			Options: []acp.PermissionOption{
				{OptionId: "always", Name: "Always", Kind: acp.PermissionOptionKindAllowAlways},
				{OptionId: "once", Name: "Once", Kind: acp.PermissionOptionKindAllowOnce},
				{OptionId: "no", Name: "No", Kind: acp.PermissionOptionKindRejectOnce},
			},
		})
		switch {
		case err != nil:
			return acp.PromptResponse{}, err
		case answer.Outcome.Selected != nil:
			a.say("chosen: " + string(answer.Outcome.Selected.OptionId))
		default:
			a.say("nothing was chosen")
			stop = acp.StopReasonCancelled
		}
	case a.name == "wait", a.name == "stubborn":
		leave()
		a.say("working")
		<-a.cancelled
		stop = acp.StopReasonCancelled
	case a.name == "exit":
		fmt.Fprintln(os.Stderr, "boom: out of luck")
		os.Exit(3)
	case a.name == "silent":
	case a.name == "late":
		time.AfterFunc(50*time.Millisecond, func() {
			a.say("It is ")
			time.Sleep(20 * time.Millisecond)
			a.say("done.")
		})
	case a.name == "flood":
		for i := range 3000 {
			a.say(strings.Repeat("x", 100) + "\n")
			a.update(acp.StartToolCall(acp.ToolCallId(fmt.Sprint("call-", i)), "Read", acp.WithStartStatus(acp.ToolCallStatusInProgress)))
		}
		a.say(strings.Repeat("\x00", 1<<20))
	case a.name == "leave", a.name == "deaf":
		leave()
		a.say("The server runs.")
	case a.name == "error":
		return acp.PromptResponse{}, &acp.RequestError{Code: -32603, Message: "Internal error", Data: map[string]any{"details": "the model is ill"}}
	case strings.HasPrefix(a.name, "stop-"):
		a.say("I stop.")
		stop = acp.StopReason(strings.TrimPrefix(a.name, "stop-"))
	default:
		a.say("prompt: " + p.Prompt[0].Text.Text)
	}
	return acp.PromptResponse{StopReason: stop}, nil
}
