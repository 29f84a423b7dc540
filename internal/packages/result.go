package packages

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Result is what came of an installation. Exactly one of its fields is set.
type Result struct {
	Installed []Package `json:"installed,omitempty"`
	Error     *Failure  `json:"error,omitempty"`
}

// Package is a package that was asked for, and the version that is there now.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Failure says why packages were not installed.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"` // the installer's own line, or why it was ended
	Hint    string `json:"hint,omitempty"`
	Log     string `json:"log"` // the end of what it printed
}

// The codes of a [Failure].
const (
	NotFound     = "not_found"     // no such package, or not in this version
	HashMismatch = "hash_mismatch" // the file is not what the index says
	EgressDenied = "egress_denied" // the sandbox may not reach the index
	Unreachable  = "unreachable"   // the index does not answer, or not as one
	Conflict     = "conflict"      // the versions exclude each other
	DiskFull     = "disk_full"
	OutOfMemory  = "out_of_memory"
	NoInstaller  = "no_installer" // the image has none for the runtime
	Timeout      = "timeout"
	Canceled     = "canceled"
	Unclassified = "failed"
)

// Tail is how much of the end of each stream [ResultOf] needs, in bytes.
const Tail = 64 << 10

const (
	maxLog  = 4000 // characters of a failure's log
	maxLine = 500
)

// ResultOf makes the result of an installation out of how it ended, the end of
// its standard output, and the end of all that it printed.
func ResultOf(exit sandbox.Exit, stdout, all []byte) Result {
	log := splitLines(string(all))
	fail := func(code, message, hint string) Result {
		return Result{Error: &Failure{Code: code, Message: message, Hint: hint, Log: end(log)}}
	}
	switch {
	case exit.Reason == sandbox.EndTimeout:
		return fail(Timeout, "the time for it was over", "the operator's packages-timeout bounds it; install fewer at a time")
	case exit.Reason == sandbox.EndKilled:
		return fail(Canceled, "it was canceled", "")
	case exit.Reason == sandbox.EndOOM:
		return fail(OutOfMemory, "the sandbox ran out of memory", "create it with more limits.memory_bytes")
	case exit.Code != nil && *exit.Code == 127:
		return fail(NoInstaller, or(last(log), exit.Message, "the image has no installer for this runtime"),
			"python and node are in the image base, r in the image r")
	case exit.Code == nil || exit.Reason != sandbox.EndExited:
		return fail(Unclassified, or(exit.Message, "it ended with the sandbox"), "")
	case *exit.Code != 0:
		return Result{Error: classify(log)}
	}
	var r Result
	if err := json.Unmarshal([]byte(last(splitRaw(stdout))), &r); err != nil || len(r.Installed) == 0 {
		return fail(Unclassified, "the installer did not say what it installed", "")
	}
	r.Error = nil
	return r
}

// cause is one way to fail. The first cause that says of any line what it says
// decides, so causes come before what they lead to.
type cause struct {
	code string
	says *regexp.Regexp
	hint string
}

var causes = func() []cause {
	c := func(code, says, hint string) cause { return cause{code, regexp.MustCompile("(?i)" + says), hint} }
	return []cause{
		c(DiskFull, `no space left on device|disk quota exceeded|ENOSPC`, "the sandbox's disk is full: create it with more limits.disk_bytes"),
		c(EgressDenied, `cubby: egress to |Could not fetch URL .*: 403 |Tunnel connection failed: 403|E403|HTTP status was '403|status was '403|CONNECT tunnel failed, response 403|is not on this sandbox's allowlist|network mode "allowlist"|`+
			// Without the proxy: names that are denied are the only ones that are not found.
			`Name or service not known|ENOTFOUND|Could not resolve host|alert[ _]access[ _]denied`,
			"name the index's host in the sandbox's network.allow, or ask the operator to add it to CUBBY_EGRESS_ALLOW"),
		c(NoInstaller, `No module named '?pip`, "the image has Python and no pip; use the image base"),
		c(HashMismatch, `DO NOT MATCH THE HASHES|EINTEGRITY`, "the index serves another file than it says"),
		c(Conflict, `ResolutionImpossible|conflicting dependencies|ERESOLVE`, "ask for other versions, or leave some empty"),
		// What pip says last when it could not ask is that there is no such package.
		c(Unreachable, `Could not fetch URL|^Cannot fetch: |Connection refused|Failed to establish a new connection|ProxyError|ConnectTimeout|Read timed out|Temporary failure in name resolution|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN|E50\d|HTTP error 50\d|too many 50\d error responses|cannot be read$|cannot open URL|unable to access index`,
			"the index does not answer; the operator sets it with pip-index-url, npm-registry and cran-mirror"),
		c(NotFound, `No matching distribution found|Could not find a version that satisfies|E404|ETARGET|No matching version found|is not available at`,
			"check the name and the version"),
	}
}()

// npmCode is the line of npm that has only a code.
var npmCode = regexp.MustCompile(`^npm (ERR!|error) code `)

// classify finds the cause in what the installer printed.
func classify(log []string) *Failure {
	for _, c := range causes {
		for i := len(log) - 1; i >= 0; i-- {
			if !c.says.MatchString(log[i]) {
				continue
			}
			line := log[i]
			if npmCode.MatchString(line) && i+1 < len(log) {
				line = log[i+1] // says it in words
			}
			return &Failure{Code: c.code, Message: line, Hint: c.hint, Log: end(log)}
		}
	}
	f := &Failure{Code: Unclassified, Message: or(last(log), "the installer failed"), Log: end(log)}
	for _, line := range log {
		for _, prefix := range []string{"ERROR: ", "error: ", "npm ERR! ", "npm error ", "Error: "} {
			if strings.HasPrefix(line, prefix) {
				f.Message = line
			}
		}
	}
	return f
}

func or(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func last(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// splitRaw gives lines that are not empty, whole.
func splitRaw(b []byte) []string {
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' || r == '\r' })
}

// splitLines gives the lines that people read: without control characters, and
// none of them endless.
func splitLines(text string) []string {
	var lines []string
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, strings.ToValidUTF8(line, "?"))
		if line = strings.TrimRight(line, " "); line != "" {
			lines = append(lines, shorten(line))
		}
	}
	return lines
}

func shorten(line string) string {
	if r := []rune(line); len(r) > maxLine {
		return string(r[:maxLine]) + "…"
	}
	return line
}

// end is as many of the last lines as a failure shows.
func end(lines []string) string {
	from, n := len(lines), 0
	for from > 0 {
		n += len([]rune(lines[from-1])) + 1
		if n > maxLog {
			break
		}
		from--
	}
	return strings.Join(lines[from:], "\n")
}
