package cli

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// mcpThread is the conversation of this user: the same one in every run.
// Where it cannot be kept it is a new one.
func (a *app) mcpThread() string {
	file, err := a.stateFile("mcp-thread.json")
	var kept struct {
		ThreadID string `json:"thread_id"`
	}
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(file); err == nil && json.Unmarshal(text, &kept) == nil && kept.ThreadID != "" {
			return kept.ThreadID
		}
	}
	kept.ThreadID = "mcp-" + strings.ToLower(rand.Text())
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		text, _ := json.Marshal(kept) // a string has no error
		err = writeState(file, text)
	}
	if err != nil {
		a.note("the conversation is not kept for the next run: %v", err)
	}
	return kept.ThreadID
}

// stateFile is where a file of this user's state is.
func (a *app) stateFile(name string) (string, error) {
	dir := a.getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		home := a.getenv("HOME")
		if !filepath.IsAbs(home) {
			return "", errors.New("there is no home directory")
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "cubby", name), nil
}

// writeState replaces a file as a whole.
func writeState(file string, text []byte) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error is told
	}
	return err
}
