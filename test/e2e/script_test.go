// Package e2e drives a whole daemon with scripts. Those of testdata/api and
// testdata/isolation run against a daemon without isolation in go test, and as
// root against the real program with real sandboxes: testdata/isolation, which
// depends on what runs the sandboxes, with both isolations, testdata/api with
// containers (make test-long: with both). Those of testdata/real need real
// walls and run as root only. Every bug and every attack has a script that is
// named after it.
//
// Beside the commands of testscript there are:
//
//	daemon              takes a daemon that scripts use one after the other, or
//	                    starts the script's own again
//	daemon own          starts one for this script, which it may stop and kill
//	daemon FLAG…        the same, with flags
//	daemon-stop         stops it in good order
//	daemon-kill         kills it, as kill -9 does (real only)
//	http METHOD PATH [BODY] [Name:Value…]
//	                    sends a request; BODY is text, @FILE, @zeros:N or -;
//	                    stdout is the status, the headers and the body; the
//	                    answer must be as api/openapi.json says. PATH may be
//	                    the URL of a preview, whose answers are the app's
//	status N            compares the status of the last answer
//	json PATH [VALUE]   compares a field of the last body, with \n for line ends;
//	                    ! json PATH: it is absent
//	set NAME PATH       takes a field of the last body into a variable
//	body REGEXP         matches the last body
//	size N              compares the size of the last body
//	until N REGEXP CMD… repeats a command until its output matches, for N
//	                    seconds, at least 60
package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cubbyhq/cubby/internal/cli"
)

// patience bounds whatever is awaited of a daemon: what never comes fails its
// test and does not hang it. The machine may be slow and busy.
const patience = 10 * time.Minute

func TestMain(m *testing.M) {
	http.DefaultClient.Timeout = patience
	// Most of the time the scripts wait; the command line can say otherwise.
	testing.Init()
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.NumCPU())); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){
		"cubby": func() {
			os.Exit(cli.Main(mainContext(), cli.Env{
				Args: os.Args[1:], Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			}))
		},
	})
}

// host is a daemon that scripts talk to.
type host interface {
	// start starts a daemon with flags. Own: not one that other scripts use.
	start(flags []string, own bool) (url string, err error)
	stop() error
	kill() error
}

// script is the state of one running script.
type script struct {
	host host
	url  string

	status int
	header http.Header
	body   []byte
}

type scriptKey struct{}

// params makes the commands and conditions for one kind of host. Facts are the
// conditions that hold for it.
func params(dirs []string, newHost func(*testscript.Env) host, facts ...string) testscript.Params {
	var files []string
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
		if err != nil {
			panic(err)
		}
		files = append(files, found...)
	}
	return testscript.Params{
		Files: files,
		Setup: func(env *testscript.Env) error {
			s := &script{host: newHost(env)}
			env.Values[scriptKey{}] = s
			if h, ok := s.host.(*fakeHost); ok {
				env.Defer(func() { _ = h.stop() })
			}
			for _, f := range facts {
				if f == "gvisor" || f == "container" {
					env.Setenv("ISOLATION", f)
				}
			}
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "real", "fake", "gvisor", "container":
				for _, f := range facts {
					if f == cond {
						return true, nil
					}
				}
				return false, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon": cmdDaemon, "daemon-stop": cmdDaemonStop, "daemon-kill": cmdDaemonKill,
			"http": cmdHTTP, "status": cmdStatus, "json": cmdJSON, "set": cmdSet, "body": cmdBody, "size": cmdSize, "until": cmdUntil,
		},
	}
}

func of(ts *testscript.TestScript) *script { return ts.Value(scriptKey{}).(*script) }

func cmdDaemon(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	own := len(args) == 1 && args[0] == "own"
	if own {
		args = nil
	}
	url, err := s.host.start(args, own)
	if neg {
		if err == nil {
			ts.Fatalf("the daemon started")
		}
		_, _ = fmt.Fprintln(ts.Stdout(), err)
		return
	}
	ts.Check(err)
	s.url = url
	ts.Setenv("URL", url)
	if h, ok := s.host.(interface{ environ() map[string]string }); ok {
		for k, v := range h.environ() {
			ts.Setenv(k, v)
		}
	}
	ts.Setenv("CUBBY_URL", url)
}

func cmdDaemonStop(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(of(ts).host.stop()) }
func cmdDaemonKill(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(of(ts).host.kill()) }

// client sends what it is told and follows nothing.
var client = &http.Client{
	Transport:     &http.Transport{DialContext: dialLocal},
	Timeout:       3 * time.Minute,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// dialLocal connects names below localhost to this machine, as browsers do.
func dialLocal(ctx context.Context, network, address string) (net.Conn, error) {
	if host, port, err := net.SplitHostPort(address); err == nil && strings.HasSuffix(host, ".localhost") {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

func cmdHTTP(ts *testscript.TestScript, neg bool, args []string) {
	err := send(ts, args)
	if neg {
		if err == nil {
			ts.Fatalf("the request was answered")
		}
		return
	}
	ts.Check(err)
}

func send(ts *testscript.TestScript, args []string) error {
	s := of(ts)
	if len(args) < 2 {
		return errors.New("usage: http METHOD PATH [BODY] [Name:Value…]")
	}
	method, target := args[0], s.url+args[1]
	preview := strings.HasPrefix(args[1], "http://")
	if preview {
		target = args[1]
	}
	var body io.Reader
	rest := args[2:]
	if len(rest) > 0 {
		var err error
		if body, err = bodyOf(ts, rest[0]); err != nil {
			return err
		}
		rest = rest[1:]
	}
	req, err := http.NewRequest(method, target, body)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range rest {
		name, value, ok := strings.Cut(h, ":")
		switch value = strings.TrimSpace(value); {
		case !ok:
			return fmt.Errorf("%q is not Name:Value", h)
		case strings.EqualFold(name, "host"):
			req.Host = value
		case value == "":
			req.Header.Del(name)
		default:
			req.Header.Set(name, value)
		}
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	s.status, s.header = res.StatusCode, res.Header
	if s.body, err = io.ReadAll(res.Body); err != nil {
		return fmt.Errorf("%d, and the body broke off after %d bytes: %w", res.StatusCode, len(s.body), err)
	}
	if !preview {
		if err := keepsContract(method, req.URL.EscapedPath(), s.status, s.header, s.body); err != nil {
			return err
		}
	}
	out := ts.Stdout()
	fmt.Fprintf(out, "%d\n", s.status)
	if err := res.Header.Write(out); err != nil {
		return err
	}
	const show = 4096
	fmt.Fprintf(out, "\n%s\n", s.body[:min(show, len(s.body))])
	return nil
}

func bodyOf(ts *testscript.TestScript, arg string) (io.Reader, error) {
	switch name, isFile := strings.CutPrefix(arg, "@"); {
	case arg == "-":
		return nil, nil
	case isFile && strings.HasPrefix(name, "zeros:"):
		n, err := strconv.Atoi(strings.TrimPrefix(name, "zeros:"))
		return bytes.NewReader(make([]byte, n)), err
	case isFile:
		data, err := os.ReadFile(ts.MkAbs(name))
		return bytes.NewReader(data), err
	}
	return strings.NewReader(arg), nil
}

func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if s := of(ts); len(args) != 1 || (strconv.Itoa(s.status) == args[0]) == neg {
		ts.Fatalf("status = %d, want %s (not: %v); body: %s", s.status, strings.Join(args, " "), neg, shorten(s.body))
	}
}

func cmdBody(ts *testscript.TestScript, neg bool, args []string) {
	re, err := regexp.Compile("(?s)" + strings.Join(args, " "))
	ts.Check(err)
	if s := of(ts); re.Match(s.body) == neg {
		ts.Fatalf("match of %s = %v; body: %s", re, !neg, shorten(s.body))
	}
}

func cmdSize(ts *testscript.TestScript, _ bool, args []string) {
	if s := of(ts); strconv.Itoa(len(s.body)) != args[0] {
		ts.Fatalf("the body has %d bytes, want %s", len(s.body), args[0])
	}
}

func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	got, ok, err := lookup(s.body, args[0])
	ts.Check(err)
	switch {
	case len(args) == 1 && ok == neg:
		ts.Fatalf("%s is there: %v; body: %s", args[0], ok, shorten(s.body))
	case len(args) == 2 && (ok && escape(got) == args[1]) == neg:
		ts.Fatalf("%s = %s, want %s (not: %v); body: %s", args[0], escape(got), args[1], neg, shorten(s.body))
	}
}

func cmdSet(ts *testscript.TestScript, _ bool, args []string) {
	got, ok, err := lookup(of(ts).body, args[1])
	ts.Check(err)
	if !ok {
		ts.Fatalf("the body has no %s: %s", args[1], shorten(of(ts).body))
	}
	ts.Setenv(args[0], got)
}

// lookup finds a.b.0.c in JSON and gives a string as it is and anything else
// as JSON. "len" is the length of a list.
func lookup(body []byte, path string) (string, bool, error) {
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return "", false, fmt.Errorf("the body is not JSON: %s", shorten(body))
	}
	for step := range strings.SplitSeq(path, ".") {
		if step == "" {
			continue
		}
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[step]
			if !ok {
				return "", false, nil
			}
			v = next
		case []any:
			if step == "len" {
				return strconv.Itoa(len(at)), true, nil
			}
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return "", false, nil
			}
			v = at[i]
		default:
			return "", false, nil
		}
	}
	if s, ok := v.(string); ok {
		return s, true, nil
	}
	text, err := json.Marshal(v)
	return string(text), true, err
}

// escape makes one line of a value: scripts write \n for a line's end.
func escape(s string) string {
	return strings.NewReplacer("\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s)
}

// cmdUntil repeats an http request until its answer matches.
func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 4 || args[2] != "http" {
		ts.Fatalf("usage: until SECONDS REGEXP http …")
	}
	limit, err := strconv.ParseFloat(args[0], 64)
	ts.Check(err)
	limit = max(limit, 60)
	re, err := regexp.Compile("(?s)" + args[1])
	ts.Check(err)
	deadline := time.Now().Add(time.Duration(limit * float64(time.Second)))
	for {
		err := send(ts, args[3:])
		s := of(ts)
		if err == nil && re.Match(s.body) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%v seconds and no match of %s: %v, %d %s", limit, re, err, s.status, shorten(s.body))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func shorten(b []byte) string {
	const most = 2000
	if len(b) > most {
		return string(b[:most]) + "…"
	}
	return string(b)
}
