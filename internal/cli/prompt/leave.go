package prompt

import (
	"regexp"
	"slices"
	"strings"
)

// leavingCall is one call on one line, with literal arguments at most, named
// ones among them: exit(0), q("no", status = 1).
var leavingCall = func() *regexp.Regexp {
	const literal = `(?:[-+]?\d+L?|"[^"\\\n]*"|'[^'\\\n]*'|True|true|TRUE|T|False|false|FALSE|F|None|NULL|null|undefined)`
	const argument = `[ \t]*(?:[A-Za-z_.]+[ \t]*=[ \t]*)?` + literal + `[ \t]*`
	return regexp.MustCompile(`^([a-z.]+)[ \t]*\((?:[ \t]*|` + argument + `(?:,` + argument + `)*)\)$`)
}()

// leavingStatus is how a shell is left with a status.
var leavingStatus = regexp.MustCompile(`^exit[ \t]+\d+$`)

// leaves reports that a line is what people type to leave a prompt of the
// language. Run as a cell it would end the kernel under them.
func leaves(language, code string) bool {
	line := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(code), ";"))
	words, calls := []string{"exit", "quit"}, []string{"exit", "quit"}
	switch language {
	case "node":
		words, calls = append(words, ".exit"), append(calls, "process.exit")
	case "r":
		words, calls = append(words, "q"), append(calls, "q")
	case "bash":
		if leavingStatus.MatchString(line) {
			return true
		}
	}
	call := leavingCall.FindStringSubmatch(line)
	return slices.Contains(words, line) || call != nil && slices.Contains(calls, call[1])
}
