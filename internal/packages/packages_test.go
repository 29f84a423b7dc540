package packages_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/packages"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestMake(t *testing.T) {
	tests := []struct {
		runtime, name, version string
		want                   string // the argument; "" is a refusal
	}{
		{"python", "pandas", "", "pandas"},
		{"python", "pandas", "2.2.3", "pandas==2.2.3"},
		{"python", "zope.interface", "1!5.0rc1.post2+local.7", "zope.interface==1!5.0rc1.post2+local.7"},
		{"python", "Django", ">= 4.2 , < 5", "Django>=4.2,<5"},
		{"python", "numpy", "~=1.26", "numpy~=1.26"},
		{"python", "numpy", "==1.26.*", "numpy==1.26.*"},
		{"", "six", "1.16.0", "six==1.16.0"},
		{"python", "foo; rm -rf /", "", ""},
		{"python", "foo", "1; rm -rf /", ""},
		{"python", "foo", "1.0 --index-url=http://evil", ""},
		{"python", "foo", "1.0\n", ""},
		{"python", "foo", "@ http://evil/x.whl", ""},
		{"python", "foo", "==", ""},
		{"python", "foo", ">=1,", ""},
		{"python", "foo", "^1.2", ""},
		{"python", "foo", "$(id)", ""},
		{"python", "-r", "", ""},
		{"python", "--upgrade", "", ""},
		{"python", "../x", "", ""},
		{"python", "x/y", "", ""},
		{"python", "x.whl\x00", "", ""},
		{"python", "foo-", "", ""},
		{"python", "@types/node", "", ""},
		{"python", "fööö", "", ""},
		{"python", "", "1", ""},
		{"python", strings.Repeat("x", 215), "", ""},
		{"python", "foo", strings.Repeat("1", 129), ""},
		{"node", "lodash", "", "lodash"},
		{"node", "lodash", "4.17.21", "lodash@4.17.21"},
		{"node", "@types/node", "20.0.0-rc.1", "@types/node@20.0.0-rc.1"},
		{"node", "react", "^18.2.0", "react@^18.2.0"},
		{"node", "react", "~18", "react@~18"},
		{"node", "react", "18.x", "react@18.x"},
		{"node", "react", ">=17 <19", "react@>=17 <19"},
		{"node", "react", "17 || 18", "react@17 || 18"},
		{"node", "react", "next", "react@next"},
		{"node", "JSONStream", "1.3.5", "JSONStream@1.3.5"},
		{"node", "x", "git+https://evil/x", ""},
		{"node", "x", "https://evil/x.tgz", ""},
		{"node", "x", "file:../x", ""},
		{"node", "x", "npm:evil@1", ""},
		{"node", "x", "evil/repo", ""},
		{"node", "x", "--global", ""},
		{"node", "x", "`id`", ""},
		{"node", "x", "1 && id", ""},
		{"node", "@types", "", ""},
		{"node", "@types/../x", "", ""},
		{"node", "a/b", "", ""},
		{"node", "./x", "", ""},
		{"node", "x@1", "", ""},
		{"node", "-g", "", ""},
		{"r", "jsonlite", "", "jsonlite"},
		{"r", "data.table", "1.15.4", "data.table@1.15.4"},
		{"r", "MASS", "7.3-60", "MASS@7.3-60"},
		{"r", "jsonlite", ">=1.0", ""},
		{"r", "jsonlite", "1.0'); system('id", ""},
		{"r", "jsonlite'); system('id", "", ""},
		{"r", "a_b", "", ""},
		{"r", ".hidden", "", ""},
		{"r", "2fast", "", ""},
		{"cobol", "x", "", ""},
	}
	for _, tt := range tests {
		c, err := packages.Make(packages.Request{Runtime: tt.runtime, Dependencies: map[string]string{tt.name: tt.version}})
		if tt.want == "" {
			if !errors.Is(err, errs.Invalid) {
				t.Errorf("%s %q %q = %q, %v, want Invalid", tt.runtime, tt.name, tt.version, c.Argv, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %q %q: %v", tt.runtime, tt.name, tt.version, err)
			continue
		}
		last, want := c.Argv[len(c.Argv)-1], fmt.Sprintf(`[{"name":%q,"argument":%q}]`, tt.name, tt.want)
		if tt.runtime == "r" {
			want = tt.want
		}
		if last != want {
			t.Errorf("%s %q %q: the argument is %s, want %s", tt.runtime, tt.name, tt.version, last, want)
		}
	}
}

func TestMakeOfSeveral(t *testing.T) {
	c, err := packages.Make(packages.Request{Runtime: sandbox.RuntimeR, Dependencies: map[string]string{"crayon": "", "R6": "2.5.1", "abind": ""}})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Argv[len(c.Argv)-3:]; !slices.Equal(got, []string{"R6@2.5.1", "abind", "crayon"}) {
		t.Errorf("the arguments are %q", got)
	}
	if c.Cwd != "/" || string(c.Detail) != `{"runtime":"r","dependencies":{"R6":"2.5.1","abind":"","crayon":""}}` {
		t.Errorf("cwd %s, detail %s", c.Cwd, c.Detail)
	}
	many := map[string]string{}
	for i := range sandbox.MaxDependencies + 1 {
		many[fmt.Sprintf("p%d", i)] = ""
	}
	for _, list := range []map[string]string{nil, {}, many} {
		if _, err := packages.Make(packages.Request{Dependencies: list}); !errors.Is(err, errs.Invalid) {
			t.Errorf("Make of %d = %v, want Invalid", len(list), err)
		}
	}
}

// TestLongestFits: what is accepted can be run and remembered.
func TestLongestFits(t *testing.T) {
	list := map[string]string{}
	for i := range sandbox.MaxDependencies {
		name := fmt.Sprintf("p%03d", i)
		list[name+strings.Repeat("x", sandbox.MaxDependency-len(name))] = strings.Repeat("1", sandbox.MaxVersion)
	}
	for _, runtime := range []string{"python", "node"} {
		c, err := packages.Make(packages.Request{Runtime: runtime, Dependencies: list})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Spec().Validate(); err != nil {
			t.Errorf("%s: %v", runtime, err)
		}
	}
}

func TestResult(t *testing.T) {
	code := func(n int) *int { return &n }
	exited := func(n int) sandbox.Exit { return sandbox.Exit{Code: code(n), Reason: sandbox.EndExited} }
	const done = `{"installed": [{"name": "six", "version": "1.16.0"}]}` + "\n"
	tests := []struct {
		name        string
		exit        sandbox.Exit
		stdout, all string
		code        string
		message     string
	}{
		{"done", exited(0), "Successfully installed six-1.16.0\n" + done, "", "", ""},
		{"silent success", exited(0), "", "", packages.Unclassified, "did not say"},
		{"success that lies about a failure", exited(0), `{"error":{"code":"x"}}`, "", packages.Unclassified, "did not say"},
		{"no such package", exited(1), "", "ERROR: Could not find a version that satisfies the requirement x (from versions: none)\nERROR: No matching distribution found for x\n", packages.NotFound, "for x"},
		{"index down", exited(1), "", "WARNING: Retrying … ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 502 x'))\nERROR: Could not find a version that satisfies the requirement x (from versions: none)\nERROR: No matching distribution found for x\n", packages.Unreachable, "ProxyError"},
		{"index that answers with errors", exited(1), "", "ERROR: No matching distribution found for x\nCould not fetch URL http://h/simple/x/: 503 Server Error: down - skipping\n", packages.Unreachable, "503"},
		{"index over plain HTTP that is not allowed", exited(1), "", "ERROR: No matching distribution found for x\nCould not fetch URL http://h/simple/x/: 403 Client Error: cubby: h is not on this sandbox's allowlist - skipping\n", packages.EgressDenied, "403"},
		{"mirror that does not answer", exited(1), "", "Cannot fetch: URL 'http://h/x_1.0.tar.gz': status was 'Could not connect to server'\nError: package 'x' version 1.0 is not available at http://h\n", packages.Unreachable, "connect"},
		{"R and a mirror that is not allowed", exited(1), "", "Cannot fetch: URL 'https://h/PACKAGES': status was 'HTTP response code said error'\nHost not allowed: h\ncubby: egress to h:443 denied (rule allowlist): h is not on this sandbox's allowlist\nask the operator to add h\nError: the index of https://h cannot be read\n", packages.EgressDenied, "egress to h:443 denied"},
		{"not allowed", exited(1), "", "WARNING: ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 403 cubby: x is not on this sandbox's allowlist'))\nERROR: No matching distribution found for x\n", packages.EgressDenied, "403"},
		{"a name that is denied", exited(1), "", "WARNING: Retrying … NewConnectionError('…: Failed to establish a new connection: [Errno -2] Name or service not known')\nERROR: No matching distribution found for x\n", packages.EgressDenied, "not known"},
		{"names when the daemon is away", exited(1), "", "WARNING: Retrying … NewConnectionError('…: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')\nERROR: No matching distribution found for x\n", packages.Unreachable, "Temporary"},
		{"npm and a name that is denied", exited(1), "", "npm ERR! code ENOTFOUND\nnpm ERR! syscall getaddrinfo\nnpm ERR! network request to https://h/x failed, reason: getaddrinfo ENOTFOUND h\n", packages.EgressDenied, "reason: getaddrinfo ENOTFOUND h"},
		{"npm when the daemon is away", exited(1), "", "npm ERR! code EAI_AGAIN\nnpm ERR! request to https://h/x failed, reason: getaddrinfo EAI_AGAIN h\n", packages.Unreachable, "EAI_AGAIN h"},
		{"an address that is denied", exited(1), "", "npm ERR! code EPROTO\nnpm ERR! write EPROTO 80:error:0A000419:SSL routines:ssl3_read_bytes:tlsv1 alert access denied:../rec_layer_s3.c:918\n", packages.EgressDenied, "access denied"},
		{"R and a name that is denied", exited(1), "", "Cannot fetch: URL 'https://h/PACKAGES': status was 'Could not resolve hostname'\nError: the index of https://h cannot be read\n", packages.EgressDenied, "resolve"},
		{"npm has no such version", exited(1), "", "npm error code ETARGET\nnpm error notarget No matching version found for x@9.\n", packages.NotFound, "No matching version found for x@9."},
		{"older npm has no such package", exited(1), "", "npm ERR! code E404\nnpm ERR! 404 Not Found - GET http://h/x - not found\n", packages.NotFound, "404 Not Found - GET"},
		{"npm integrity", exited(1), "", "npm ERR! code EINTEGRITY\nnpm ERR! sha512-x integrity checksum failed\n", packages.HashMismatch, "checksum"},
		{"pip hash", exited(1), "", "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n", packages.HashMismatch, ""},
		{"disk", exited(1), "", "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", packages.DiskFull, "No space"},
		{"R has no such version", exited(1), "", "Error: package 'x' version 9.0 is not available at http://h\n", packages.NotFound, "9.0"},
		{"no R", sandbox.Exit{Code: code(127), Reason: sandbox.EndNotRun, Message: "Rscript: not found"}, "", "", packages.NoInstaller, "Rscript: not found"},
		{"a build that fails", exited(1), "", "error: subprocess-exited-with-error\nERROR: Failed building wheel for x\nand more\n", packages.Unclassified, "ERROR: Failed building wheel for x"},
		{"time", sandbox.Exit{Code: code(137), Reason: sandbox.EndTimeout}, "", "Collecting x\n", packages.Timeout, "time"},
		{"canceled", sandbox.Exit{Code: code(137), Reason: sandbox.EndKilled}, "", "", packages.Canceled, "canceled"},
		{"out of memory", sandbox.Exit{Code: code(137), Reason: sandbox.EndOOM}, "", "", packages.OutOfMemory, ""},
		{"the sandbox went", sandbox.Exit{Reason: sandbox.EndDied, Message: "it died"}, "", "", packages.Unclassified, "it died"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := packages.ResultOf(tt.exit, []byte(tt.stdout), []byte(tt.all+tt.stdout))
			if tt.code == "" {
				if r.Error != nil || len(r.Installed) != 1 || r.Installed[0] != (packages.Package{Name: "six", Version: "1.16.0"}) {
					t.Errorf("ResultOf = %+v", r)
				}
				return
			}
			if r.Error == nil || r.Installed != nil || r.Error.Code != tt.code || !strings.Contains(r.Error.Message, tt.message) {
				t.Errorf("ResultOf = %+v, want the code %s and the message …%s…", r.Error, tt.code, tt.message)
			}
		})
	}
}

// TestLogOfFailure: its end, bounded, and harmless to show.
func TestLogOfFailure(t *testing.T) {
	one := 1
	var log strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&log, "line %d\x1b[31m\xff\r\n", i)
	}
	log.WriteString(strings.Repeat("x", 100_000))
	f := packages.ResultOf(sandbox.Exit{Code: &one, Reason: sandbox.EndExited}, nil, []byte(log.String())).Error
	if len(f.Log) > 8000 || len(f.Message) > 1000 || !strings.Contains(f.Log, "line 9999 [31m?") || strings.ContainsAny(f.Log, "\x1b\r") {
		t.Errorf("the log has %d bytes, the message %d: %.200q", len(f.Log), len(f.Message), f.Log)
	}
}

func TestIndexes(t *testing.T) {
	x := packages.Indexes{PyPI: "http://pypi.example:8081/simple", CRAN: "https://cran.example"}
	if got := x.Hosts(); !slices.Equal(got, []string{"pypi.example:8081", "cran.example:443"}) {
		t.Errorf("Hosts = %q", got)
	}
	env := x.InstallEnv()
	if len(env) != 3 || env["PIP_INDEX_URL"] != x.PyPI || env["PIP_TRUSTED_HOST"] != "pypi.example:8081" || env["CUBBY_CRAN_MIRROR"] != x.CRAN {
		t.Errorf("InstallEnv = %v", env)
	}
	local := packages.Indexes{NPM: "http://127.0.0.1:4873"}
	if _, ok := local.InstallEnv()["NO_PROXY"]; !ok || len(local.Env()) != 1 {
		t.Errorf("an index on loopback: %v and %v", local.InstallEnv(), local.Env())
	}
	for index, ok := range map[string]bool{
		"": true, "https://pypi.org/simple": true, "http://10.0.0.5:8080": true, "http://[::1]:80/x": true,
		"pypi.org": false, "ftp://x/y": false, "https://": false, "https://u:p@h/": false, "https://h/ x": false, "://": false,
	} {
		if err := packages.Validate("pip-index-url", index); (err == nil) != ok || err != nil && !strings.HasPrefix(err.Error(), "pip-index-url") {
			t.Errorf("Validate(%q) = %v", index, err)
		}
	}
}
