package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/google/renameio/v2"
	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/client/agent"
	"github.com/cubbyhq/cubby/internal/cli/edit"
)

// What a prompt may have.
const (
	maxImage = 10 << 20
	maxInput = 1 << 20
)

// prompt is what is asked at first: arguments, images, and the input unless it is a
// terminal.
func (f flags) prompt(in io.Reader, terminal bool, args []string) (agent.RunRequest, error) {
	var r agent.RunRequest
	var parts []string
	if len(args) > 0 && args[0] != "-" {
		parts = append(parts, args[0])
	}
	if !terminal && readable(in) {
		text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
		switch {
		case err != nil:
			return r, fmt.Errorf("read the input: %w", err)
		case len(text) > maxInput:
			return r, errors.New("the input has more than 1 MiB: copy it into a sandbox with cubby cp, and give that with --sandbox")
		case !utf8.Valid(text):
			return r, errors.New("the input is no text")
		}
		parts = append(parts, strings.TrimSpace(string(text)))
	}
	r.Text = strings.TrimSpace(strings.Join(parts, "\n\n"))
	for _, name := range f.images {
		image, err := readImage(name)
		if err != nil {
			return r, err
		}
		r.Images = append(r.Images, image)
	}
	return r, nil
}

// readable reports whether an input is one that somebody gave: a pipe or a file, and no
// device.
func readable(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok {
		return in != nil
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

func readImage(name string) (agent.Image, error) {
	f, err := os.Open(name)
	if err != nil {
		return agent.Image{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxImage+1))
	if err != nil {
		return agent.Image{}, err
	}
	kind := http.DetectContentType(data)
	switch {
	case len(data) > maxImage:
		return agent.Image{}, fmt.Errorf("%s has more than 10 MiB", name)
	case !strings.HasPrefix(kind, "image/"):
		return agent.Image{}, fmt.Errorf("%s is no image", name)
	}
	return agent.Image{MIMEType: kind, Data: data}, nil
}

func newThread() string { return uuid.NewString() }

// state is what the command remembers: the thread that it was in last.
type state struct{ path string }

func openState(getenv func(string) string) state {
	dir := edit.StateDir(getenv)
	if dir == "" {
		return state{}
	}
	return state{filepath.Join(dir, "cli-thread.json")}
}

type remembered struct {
	ThreadID string `json:"thread_id"`
}

// last is the thread that was kept, "" for none.
func (s state) last() string {
	text, err := os.ReadFile(s.path)
	var r remembered
	if err != nil || json.Unmarshal(text, &r) != nil {
		return ""
	}
	return r.ThreadID
}

// keep remembers a thread. Where that is not possible the next chat begins a new one.
func (s state) keep(thread string) {
	if s.path == "" || os.MkdirAll(filepath.Dir(s.path), 0o700) != nil {
		return
	}
	text, err := json.Marshal(remembered{thread})
	if err == nil {
		_ = renameio.WriteFile(s.path, append(text, '\n'), 0o600)
	}
}
