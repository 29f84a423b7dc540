package channel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// The lines are spelled out: agents that were started long ago say them.
func TestAgentsOfThisVersionAndTheOneBefore(t *testing.T) {
	if sandbox.AgentProtocol != 2 {
		t.Fatalf("the protocol has version %d: spell out its lines and those of the version before", sandbox.AgentProtocol)
	}
	for _, version := range []string{"CUBBY1", "CUBBY2"} {
		t.Run(version, func(t *testing.T) {
			path := socketPath(t)
			l := newListener(t, path)
			dialAs(t, path, version+" s3cret control\n")
			if err := l.Wait(short(t)); err != nil {
				t.Fatal(err)
			}
			dialAs(t, path, version+" s3cret pool\n")
			conn, err := l.Dial(short(t))
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
			dialAs(t, path, version+" s3cret egress\n")
			stream, door, err := l.AcceptEgress(short(t))
			if err != nil || door != sandbox.DoorProxy {
				t.Fatalf("AcceptEgress = %v, %v", door, err)
			}
			stream.Close()
		})
	}
}

func TestAgentOfAnotherVersionIsNamed(t *testing.T) {
	for _, version := range []int{0, sandbox.AgentProtocol + 1} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			path := socketPath(t)
			l := newListener(t, path)
			waits := make(chan error, 2) // that began before the agent came
			go func() { waits <- l.Wait(short(t)) }()
			go func() {
				_, err := l.Dial(short(t))
				waits <- err
			}()
			dialAs(t, path, fmt.Sprintf("CUBBY%d s3cret control\n", version))
			_, later := l.Dial(short(t))
			for _, err := range []error{<-waits, <-waits, later} {
				if !errors.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), fmt.Sprintf("version %d of its protocol", version)) {
					t.Errorf("%v, want unsupported and its version", err)
				}
			}
			// The sandbox was started again, and its agent is a supported one.
			dialAs(t, path, "CUBBY2 s3cret control\n")
			for l.Wait(short(t)) != nil && t.Context().Err() == nil {
			}
			dialAs(t, path, "CUBBY2 s3cret pool\n")
			conn, err := l.Dial(short(t))
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		})
	}
}

// Whoever does not know the secret cannot make the agent look refused.
func TestVersionOfAStranger(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	conn := dialAs(t, path, "CUBBY9 other control\n")
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatal("a stranger was answered")
	}
	dialAs(t, path, "CUBBY2 s3cret control\n")
	if err := l.Wait(short(t)); err != nil {
		t.Error(err)
	}
}
