//go:build root

package agent_test

import (
	"bytes"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// TestKeysAreNowhere: after runs with keys of every origin, good and bad, no key is in a
// file of the data directory, in the log, or in an answer of the API.
func TestKeysAreNowhere(t *testing.T) {
	const setKey, requestKey, contextKey, assistantKey, badKey = "sk-set-abcdef0123456789", "sk-req-abcdef0123456789", "sk-ctx-abcdef0123456789", "sk-ast-abcdef0123456789", "sk-bad-abcdef0123456789"
	keys := []string{envKey, setKey, requestKey, contextKey, assistantKey, badKey}
	m := newModel(t, func(w http.ResponseWriter, r *http.Request, a asked) {
		if key := r.Header.Get("Authorization"); strings.Contains(key, badKey) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write(encode(object{"error": object{"message": "Incorrect API key provided: " + strings.TrimPrefix(key, "Bearer "), "code": "invalid_api_key"}})) // who has left reads nothing
			return
		}
		obey(w, r, a)
	})
	d := startTenants(t, m)
	do := "DO execute_terminal {\"command\":\"env; echo done\"}"
	id := d.thread(acme)
	runs := []outcome{d.run(acme, id, human(do))}
	d.must(acme, http.MethodPatch, "/v1/settings", object{"providers": object{"openai": object{"key": setKey}}}, nil)
	runs = append(runs, d.run(acme, id, human(do)))
	configurable := func(key string) object { return object{"configurable": object{"chat_model_api_key": key}} }
	runs = append(runs,
		d.run(acme, id, with(human(do), "config", configurable(requestKey))),
		d.run(acme, id, with(human(do), "context", object{"chat_model_api_key": contextKey})))
	for i, o := range runs {
		if o.Error != nil || !strings.Contains(o.last(), "done") {
			t.Errorf("run %d: %+v %.300s", i, o.Error, o.last())
		}
	}
	if o := d.run(acme, id, with(human(do), "config", configurable(badKey))); o.Error == nil || o.Error.Error != "AuthenticationError" {
		t.Errorf("a bad key: %+v", o.Error)
	}
	// An assistant's key, if it takes one at all, and the settings' own tests.
	var assistant struct {
		ID string `json:"assistant_id"`
	}
	if status, answer := d.do(acme, http.MethodPost, "/agent/assistants", object{"graph_id": "agent", "name": "with a key", "config": configurable(assistantKey), "context": object{"chat_model_api_key": assistantKey}}); status < 300 {
		t.Logf("an assistant with a key: %d %s", status, answer)
		d.must(acme, http.MethodPost, "/agent/assistants/search", object{"limit": 100}, nil)
	}
	d.must(acme, http.MethodPost, "/v1/settings/test", object{"model": "openai/scripted"}, nil)
	d.do(acme, http.MethodGet, "/v1/settings/models?provider=openai", nil)
	_ = assistant
	for _, key := range []string{envKey, setKey, requestKey, contextKey, badKey} {
		if !slices.Contains(m.keys(), "Bearer "+key) {
			t.Errorf("the model was never asked with %.6s…: this shows nothing", key)
		}
	}

	look := func(where string, text []byte) {
		t.Helper()
		for _, key := range keys {
			if i := bytes.Index(text, []byte(key)); i >= 0 {
				t.Errorf("%s has the key %.6s…: %.300q", where, key, text[max(0, i-150):])
			}
		}
	}
	for _, path := range []string{
		"/agent/threads/" + id, "/agent/threads/" + id + "/state", "/agent/threads/" + id + "/history?limit=1000", "/agent/threads/" + id + "/runs?limit=1000",
		"/v1/settings", "/settings", "/v1/sandboxes", "/metrics", "/openapi.json",
	} {
		for _, token := range []string{acme, operator} {
			_, answer := d.do(token, http.MethodGet, path, nil)
			look("GET "+path, answer)
		}
	}
	for _, path := range []string{"/agent/threads/search", "/agent/assistants/search"} {
		_, answer := d.do(acme, http.MethodPost, path, object{"limit": 1000})
		look("POST "+path, answer)
	}
	for _, r := range d.runsOf(acme, id) {
		for _, mode := range []string{"values", "updates", "messages", "messages-tuple", "custom", "events", "debug", "tasks", "checkpoints", "tools"} {
			status, answer := d.do(acme, http.MethodGet, "/agent/threads/"+id+"/runs/"+r.ID+"/stream?stream_mode="+mode, nil)
			if status != http.StatusOK {
				t.Errorf("the stream in mode %s: %d", mode, status)
			}
			look("the stream in mode "+mode, answer)
		}
	}
	var boxes struct {
		Sandboxes []struct{ ID string } `json:"sandboxes"`
	}
	d.must(acme, http.MethodGet, "/v1/sandboxes", nil, &boxes)
	for _, b := range boxes.Sandboxes {
		for _, path := range []string{"/v1/sandboxes/" + b.ID, "/v1/sandboxes/" + b.ID + "/events?limit=1000", "/v1/sandboxes/" + b.ID + "/execs?limit=1000"} {
			_, answer := d.do(acme, http.MethodGet, path, nil)
			look("GET "+path, answer)
		}
	}
	look("the log", []byte(d.Log()))
	files := d.lookAtFiles(look)
	if !files["cubby.db"] || !files["cubby.db-wal"] || !files["agent"] || !files["journals"] {
		t.Errorf("looked at %v", files)
	}
	if err := d.Stop(); err == nil {
		look("the log at its end", []byte(d.Log()))
		d.lookAtFiles(look)
	}
}

// lookAtFiles reads all that the data directory has of cubby's own. It returns the
// names at its top.
func (d *daemon) lookAtFiles(look func(where string, text []byte)) map[string]bool {
	d.t.Helper()
	top := make(map[string]bool)
	err := filepath.WalkDir(d.Dir, func(path string, e fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // it was removed meanwhile
		}
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(d.Dir, path) // it is below
		first, _, _ := strings.Cut(name, "/")
		if first == "runtimes" || first == "disks" || first == "run" { // programs, and what sandboxes have
			return fs.SkipDir
		}
		if !e.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		top[first] = true
		look(name, text)
		return nil
	})
	if err != nil {
		d.t.Error(err)
	}
	return top
}

// trap listens where no base URL of a tenant may lead. Whoever connects has got through.
func trap(t *testing.T, network, address string) (port string) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	var reached atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			_ = c.Close() // it has told all that counts
		}
	}()
	t.Cleanup(func() {
		_ = l.Close() // it ends the loop
		<-done
		if n := reached.Load(); n > 0 {
			t.Errorf("%s was connected to %d times", l.Addr(), n)
		}
	})
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestBaseURLsThatLeadInside: what a tenant or a request gives as the address of a model
// leads to no address of this machine or of its network, however it is written, and
// never has the operator's key with it.
func TestBaseURLsThatLeadInside(t *testing.T) {
	m := newModel(t, obey)
	d := startTenants(t, m)
	port := trap(t, "tcp", "0.0.0.0:0") // every address of IPv4 that this machine has
	six := trap(t, "tcp6", "[::1]:0")
	self := strings.TrimPrefix(d.URL, "http://")
	hosts := []string{
		"127.0.0.1:" + port, "127.1:" + port, "2130706433:" + port, "0x7f000001:" + port, "0x7f.0.0.1:" + port, "0177.0.0.1:" + port, "017700000001:" + port, "127.0.0.1.:" + port,
		"127.000.000.001:" + port, "0:" + port, "0.0.0.0:" + port, "127.255.255.254:" + port, "[::ffff:127.0.0.1]:" + port, "[::ffff:7f00:1]:" + port, "[0:0:0:0:0:ffff:7f00:0001]:" + port,
		"[::127.0.0.1]:" + port, "[64:ff9b::7f00:1]:" + port, "[2002:7f00:1::]:" + port, "[::1]:" + six, "[0:0:0:0:0:0:0:1]:" + six, "[::]:" + six, "[::1%25lo]:" + six,
		"localhost:" + port, "LOCALHOST:" + port, "localhost.:" + port, "ip6-localhost:" + six, "%6c%6f%63%61%6c%68%6f%73%74:" + port, "①②⑦.0.0.1:" + port,
		"10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "0xa9fea9fe", "2852039166", "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "[fe80::1]", "[fe80::1%25eth0]",
		"198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", self,
		"api.openai.com@127.0.0.1:" + port, "127.0.0.1:" + port + "#.api.openai.com", "127.0.0.1:" + port + "?.api.openai.com", "api.openai.com:443@127.0.0.1:" + port, `127.0.0.1:` + port + `\@api.openai.com`,
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name+":"+port) // leads to this machine, if anywhere
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses { // also its public ones
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			hosts = append(hosts, net.JoinHostPort(n.IP.String(), port))
		}
	}
	var urls []string
	for _, h := range hosts {
		urls = append(urls, "https://"+h+"/v1")
	}
	urls = append(urls, m.URL+"/v1", "http://127.0.0.1:"+port, "http://localhost:"+port, "HTTPS://127.0.0.1:"+port, "file:///etc/passwd", "gopher://127.0.0.1:"+port, "//127.0.0.1:"+port,
		"unix:///run/docker.sock", "https:127.0.0.1:"+port, "https://", "https:///v1", " https://127.0.0.1:"+port, "https://127.0.0.1:"+port+"\n", "https://user:pass@127.0.0.1:"+port)

	id := d.thread(acme)
	before := len(m.keys())
	for _, url := range urls {
		// A request.
		for _, key := range []string{"", "sk-own"} {
			body := with(human("SAY hello"), "config", object{"configurable": object{"chat_model_base_url": url, "chat_model_api_key": key, "chat_model_provider": "openai", "chat_model": "scripted"}})
			d.refuses("a request's "+url, http.MethodPost, "/agent/threads/"+id+"/runs/wait", body)
		}
		// A tenant's settings, of a provider that is known and of one that is not.
		for _, provider := range []string{"openai", "ollama", "mine"} {
			status, answer := d.do(acme, http.MethodPatch, "/v1/settings", object{"model": provider + "/scripted", "providers": object{provider: object{"base_url": url}}})
			if status >= 500 {
				t.Errorf("%s as the base URL of %s: %d %.300s", url, provider, status, answer)
			}
			if status >= 300 {
				continue // refused at once
			}
			d.refuses("a tenant's "+url+" in a test", http.MethodPost, "/v1/settings/test", object{"model": provider + "/scripted"})
			d.refuses("a tenant's "+url+" in a list", http.MethodGet, "/v1/settings/models?provider="+provider, nil)
			d.refuses("a tenant's "+url, http.MethodPost, "/agent/threads/"+id+"/runs/wait", human("SAY hello"))
			d.must(acme, http.MethodDelete, "/v1/settings", nil, nil)
		}
		// The settings of sandbox-agent.
		if status, _ := d.do(acme, http.MethodPut, "/settings", object{"chatModel": "scripted", "chatModelProvider": "openai", "chatModelBaseUrl": url}); status < 300 {
			d.refuses("sandbox-agent's "+url, http.MethodPost, "/agent/threads/"+id+"/runs/wait", human("SAY hello"))
			d.must(acme, http.MethodDelete, "/v1/settings", nil, nil)
		}
	}
	if n := len(m.keys()); n != before {
		t.Errorf("the operator's model was asked %d times by base URLs of a tenant", n-before)
	}
	// The operator's own leads where it led, for the tenant too.
	d.works(acme)
}

// refuses sends what must come to nothing: it is refused, or fails.
func (d *daemon) refuses(what, method, path string, body any) {
	d.t.Helper()
	status, answer := d.do(acme, method, path, body)
	text := string(answer)
	switch {
	case strings.Contains(text, `"hello"`) && !strings.Contains(text, "__error__"), strings.Contains(text, envKey), status >= 500 && status != http.StatusBadGateway && status != http.StatusServiceUnavailable:
		d.t.Errorf("%s: %d %.500s", what, status, answer)
	case status < 300 && !strings.Contains(text, "__error__") && !strings.Contains(text, `"errors":{"`):
		d.t.Errorf("%s worked: %d %.500s", what, status, answer)
	}
}
