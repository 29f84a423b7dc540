package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/client"
)

// process is a cubby daemon of our own: a process like any other daemon, so
// that its memory and its garbage collector are not ours.
type process struct {
	cmd  *exec.Cmd
	url  string
	log  string
	done chan struct{} // closed when it has ended
}

// startDaemon starts `cubby serve` on a data directory and returns when it
// answers.
func (b *bench) startDaemon(ctx context.Context, dataDir string, args ...string) (*process, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return nil, err
	}
	p := &process{url: "http://" + addr, log: filepath.Join(dataDir, "daemon.log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(b.Program, append([]string{
		"serve", "--listen=" + addr, "--data-dir=" + dataDir, "--image-dir=" + b.ImageDir, "--log-level=warn", "--pool=off", "--container-pool=0",
	}, args...)...)
	p.cmd.Env = append(cleanEnv(os.Environ()), b.environ...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us: it has to stop in order
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.done)
	}()
	if err := p.wait(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// wait returns when the daemon is ready.
func (p *process) wait(ctx context.Context) error {
	c := p.client()
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		// Ready, and not only alive: after a start it still compares its rows
		// with what runs, which is no latency of a request.
		if problems, err := c.Ready(ctx); err == nil && len(problems) == 0 {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("the daemon did not start: %s", p.lastWords())
		case <-ctx.Done():
			return errors.New("the daemon does not become ready")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// lastWords is the end of the daemon's log.
func (p *process) lastWords() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " · ")
}

func (p *process) client() *client.Client { return client.New(p.url) }

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop ends the daemon as its service manager would.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// cleanEnv leaves out settings that are meant for another daemon.
func cleanEnv(environ []string) []string {
	var out []string
	for _, kv := range environ {
		if !strings.HasPrefix(kv, "CUBBY_") && !strings.HasPrefix(kv, "SANDBOXD_") && !strings.HasPrefix(kv, "NOTIFY_SOCKET=") {
			out = append(out, kv)
		}
	}
	return out
}

// freeAddr finds a loopback port that nobody uses.
func freeAddr(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
