package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/client"
)

const (
	insideProxy = "http://127.0.0.1:3128"
	egressGoal  = 200 // MB/s
	manyTunnels = 1000
)

// addedGoal is the goal of what the way out adds to a request, in ms.
var addedGoal = map[string]float64{"gvisor": 3, "container": 1}

// lookupGoal is that of the look for a name, in ms.
var lookupGoal = map[string]float64{"gvisor": 1, "container": 0.3}

// egress measures the way out of a sandbox to an HTTPS server of our own,
// beside the same client outside, which reaches it directly.
func (b *bench) egress(ctx context.Context) error {
	_, address := ownName()
	server, err := startProbeServer(ctx, address)
	if err != nil {
		return err
	}
	defer server.close()
	s := b.report.section("egress", "The way out: HTTPS through the proxy, and without")
	requests := Probe{Kept: b.count(1000, 200), New: b.count(200, 40)}
	transfers := Probe{Download: 500e6, Upload: 500e6, Rounds: 3}
	if b.Quick {
		transfers = Probe{Download: 200e6, Upload: 200e6, Rounds: 1}
	}

	out, err := b.probeOutside(ctx, requests.to(server))
	if err != nil {
		return err
	}
	const outside = "outside, direct: "
	s.times(outside+"request", out.Kept, 0)
	s.times(outside+"new connection", out.New, 0)
	added := ms(sample(out.Kept).quantile(0.5))
	if out, err = b.probeOutside(ctx, transfers.to(server)); err != nil {
		return err
	}
	b.transferred(s, "outside, direct", out, 0)
	for _, isolation := range b.Isolations {
		if err := b.egressOf(ctx, s, server, isolation, requests, transfers, added); err != nil {
			return fmt.Errorf("%s: %w", isolation, err)
		}
	}
	s.Note = "A request is a small GET on a connection that is kept; a new connection is CONNECT, the TLS handshake and the same GET. " +
		"The client is the same program everywhere, and \"added\" is its p50 inside and through the proxy, less that of outside and direct: " +
		"what the client itself is slower inside counts. Client and server without a proxy in the sandbox show that part: in one process, and for transfers also in two, as client and agent are. " +
		"Transparent is the same without a proxy, by name: a new connection looks the name up first; it is missing where the name of this machine does not lead to loopback. A lookup is one question to the name server, as C libraries ask it; that of localhost, which no policy is asked about, is what asking takes. A name that was asked for in the last seconds is answered inside, a new one by the daemon. " +
		"A transfer is 500 MB (quick: 200) through TLS, or through the same tunnel without, which leaves the way alone. Each tunnel has carried 64 KiB before its memory is measured."
	return nil
}

func (b *bench) egressOf(ctx context.Context, s *Section, server *probeServer, isolation string, requests, transfers Probe, direct float64) error {
	id, remove, err := b.box(ctx, isolation)
	if err != nil {
		return err
	}
	defer remove()
	if err := b.sendProgram(ctx, id); err != nil {
		return err
	}
	through := func(p Probe) Probe {
		p = p.to(server)
		p.Proxy = insideProxy
		return p
	}
	out, err := b.probeInside(ctx, id, requests)
	if err != nil {
		return err
	}
	s.times(isolation+", no proxy: request", out.Kept, 0)
	s.times(isolation+", no proxy: new connection", out.New, 0)
	if out, err = b.probeInside(ctx, id, through(requests)); err != nil {
		return err
	}
	s.times(isolation+": request", out.Kept, 0)
	s.over(isolation+": request", "outside, direct: request")
	s.value(isolation+": added to a request", "ms", ms(sample(out.Kept).quantile(0.5))-direct, len(out.Kept), addedGoal[isolation], false)
	s.times(isolation+": new connection", out.New, 0)
	s.over(isolation+": new connection", "outside, direct: new connection")
	if name, _ := ownName(); name != "" {
		byItself := requests.to(server)
		byItself.Name, byItself.Lookups, byItself.NewLookups = name, requests.Kept, requests.New
		if out, err = b.probeInside(ctx, id, byItself); err != nil {
			return err
		}
		transparent := isolation + ", transparent: "
		s.times(transparent+"request", out.Kept, 0)
		s.over(transparent+"request", "outside, direct: request")
		s.value(transparent+"added to a request", "ms", ms(sample(out.Kept).quantile(0.5))-direct, len(out.Kept), addedGoal[isolation], false)
		s.times(transparent+"new connection", out.New, 0)
		s.over(transparent+"new connection", "outside, direct: new connection")
		s.times(transparent+"lookup of localhost", out.OwnLookups, 0)
		s.times(transparent+"lookup", out.Lookups, lookupGoal[isolation])
		s.over(transparent+"lookup", transparent+"lookup of localhost")
		s.times(transparent+"lookup of a new name", out.NewLookups, 0)
		s.times(transparent+"lookup by Go's resolver", out.GoLookups, 0)
	}
	if out, err = b.probeInside(ctx, id, transfers); err != nil {
		return err
	}
	b.transferred(s, isolation+", no proxy", out, 0)
	apart := transfers
	apart.Apart = true
	if out, err = b.probeInside(ctx, id, apart); err != nil {
		return err
	}
	b.transferred(s, isolation+", no proxy, two processes", out, 0)
	if out, err = b.probeInside(ctx, id, through(transfers)); err != nil {
		return err
	}
	b.transferred(s, isolation, out, egressGoal)
	plain := transfers
	plain.Plain = true
	if out, err = b.probeInside(ctx, id, through(plain)); err != nil {
		return err
	}
	b.transferred(s, isolation+", no TLS in the tunnel", out, 0)
	return b.tunnels(ctx, s, server, isolation, id, through(Probe{Tunnels: manyTunnels}))
}

// ownName is a name of this machine that leads to loopback, and the address
// there, which is 127.0.1.1 on Debian; "" and 127.0.0.1 where it has none.
func ownName() (string, netip.Addr) {
	name, err := os.Hostname()
	if err != nil {
		return "", ownLoopback
	}
	addresses, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip4", name)
	if err != nil || len(addresses) == 0 || !addresses[0].Unmap().IsLoopback() {
		return "", ownLoopback
	}
	return name, addresses[0].Unmap()
}

// ownHosts is what an operator allows for the section egress.
func ownHosts() string {
	name, address := ownName()
	if name == "" {
		return address.String()
	}
	return strings.Join([]string{address.String(), name, "*." + name}, ",")
}

func (b *bench) transferred(s *Section, name string, out Probed, goal float64) {
	s.value(name+": download", "MB/s", median(out.Download), len(out.Download), goal, true)
	s.over(name+": download", "outside, direct: download")
	s.value(name+": upload", "MB/s", median(out.Upload), len(out.Upload), goal, true)
	s.over(name+": upload", "outside, direct: upload")
}

// tunnels measures what open connections cost. The daemon is measured while
// the probe waits at the gate.
func (b *bench) tunnels(ctx context.Context, s *Section, server *probeServer, isolation, id string, p Probe) error {
	var before, with int64
	if b.daemon != nil {
		before = statusNumber(b.daemon.pid(), "VmRSS")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan error, 1)
	go func() {
		select {
		case <-server.arrived:
		case <-ctx.Done():
			watched <- ctx.Err()
			return
		}
		time.Sleep(time.Second) // what the last of them began ends
		if b.daemon != nil {
			with = statusNumber(b.daemon.pid(), "VmRSS")
		}
		select {
		case server.release <- struct{}{}:
			watched <- nil
		case <-ctx.Done():
			watched <- ctx.Err()
		}
	}()
	out, err := b.probeInside(ctx, id, p)
	if err != nil {
		return err
	}
	if err := <-watched; err != nil {
		return err
	}
	s.value(isolation+": tunnels that answer", "", float64(out.Answered), p.Tunnels, float64(p.Tunnels), true)
	n := float64(p.Tunnels)
	if b.daemon != nil {
		s.value(isolation+": daemon, memory of a tunnel", "KiB", float64(with-before)/n, p.Tunnels, 0, false)
	}
	s.value(isolation+": agent, memory of a tunnel", "KiB", float64(out.AgentWith-out.AgentBefore)/n/1024, p.Tunnels, 0, false)
	return nil
}

// sendProgram puts this program into a sandbox.
func (b *bench) sendProgram(ctx context.Context, id string) error {
	f, err := os.Open(b.Program)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	_, err = b.client.Files(id).Write(ctx, "cubby", f, client.WriteOptions{Size: info.Size(), Mode: 0o755})
	return err
}

func (b *bench) probeInside(ctx context.Context, id string, p Probe) (out Probed, err error) {
	text, err := json.Marshal(p)
	if err != nil {
		return out, err
	}
	e, err := b.client.Exec(ctx, id, client.Command("/workspace/cubby", "bench", "probe", string(text)))
	if err == nil {
		err = e.Err()
	}
	if err != nil {
		return out, fmt.Errorf("probe: %w: %s", err, e.Stderr)
	}
	return out, json.Unmarshal([]byte(e.Stdout), &out)
}

func (b *bench) probeOutside(ctx context.Context, p Probe) (out Probed, err error) {
	text, err := json.Marshal(p)
	if err != nil {
		return out, err
	}
	cmd := exec.CommandContext(ctx, b.Program, "bench", "probe", string(text))
	cmd.Env = cleanEnv(os.Environ())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return out, fmt.Errorf("probe outside: %w: %s", err, &stderr)
	}
	return out, json.Unmarshal(stdout.Bytes(), &out)
}
