package edit

import (
	"os"
	"path/filepath"
	"strings"
)

// maxHistory is how many lines a history has.
const maxHistory = 1000

// History is the lines that were typed, the newest first, and keeps them in a
// file. The zero value is empty and keeps nothing.
type History struct {
	lines []string // oldest first
	path  string   // "": nothing is kept
}

// OpenHistory reads the history of a name. One that cannot be read or written is only
// of today.
func OpenHistory(getenv func(string) string, name string) *History {
	dir := StateDir(getenv)
	if dir == "" {
		return &History{}
	}
	h := &History{path: filepath.Join(dir, name)}
	text, err := os.ReadFile(h.path)
	if err != nil {
		return h
	}
	h.lines = strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(h.lines) > maxHistory {
		h.lines = h.lines[len(h.lines)-maxHistory:]
		_ = os.WriteFile(h.path, []byte(strings.Join(h.lines, "\n")+"\n"), 0o600) // it grows on, then
	}
	return h
}

// Add appends a line unless it is blank or there already.
func (h *History) Add(line string) {
	line = strings.TrimRight(line, " \t\r\n")
	if line == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return
	}
	h.lines = append(h.lines, line)
	if h.path == "" {
		return
	}
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return
	}
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(line + "\n") // a line that is missing tomorrow
}

// Len is how many lines there are.
func (h *History) Len() int { return len(h.lines) }

// At is a line, 0 the newest.
func (h *History) At(i int) string { return h.lines[len(h.lines)-1-i] }

// StateDir is where cubby's commands keep what they remember, "" where there is no such
// place.
func StateDir(getenv func(string) string) string {
	state := getenv("XDG_STATE_HOME")
	if home := getenv("HOME"); !filepath.IsAbs(state) && home != "" {
		state = filepath.Join(home, ".local", "state")
	}
	if !filepath.IsAbs(state) {
		return ""
	}
	return filepath.Join(state, "cubby")
}
