package cli

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cubbyhq/cubby/client"
)

// shower prints what cells show.
type shower struct {
	out, errOut io.Writer
	note        func(format string, args ...any)
	inline      imageProtocol
	colors      bool   // errOut takes escape sequences
	id          string // of the sandbox
	dir         string // of files; "": none was needed yet
	files       int
	midLine     bool // what was printed last did not end its line
	wholeLines  bool // end what a cell prints with the end of a line

	// size is the terminal's that shows out; nil: it is none, and what was
	// shown stays.
	size     func() *client.WindowSize
	shown    extent // of what the cell may still take back
	clearing bool   // with the next output
}

// shower prints to out and errOut, and writes files to dir, "" for a new one.
func (a *app) shower(out, errOut io.Writer, id, dir string) *shower {
	s := &shower{out: out, errOut: errOut, note: a.note, id: id, dir: dir}
	if _, ok := terminal(a.Stdout); ok {
		s.inline, s.size = protocolOf(a.getenv), a.windowSize
	}
	_, s.colors = terminal(a.Stderr)
	return s
}

// output prints one thing that cell seq shows.
func (s *shower) output(seq int64, o client.CodeOutput) error {
	switch {
	case o.Text != "":
		w := s.out
		if o.Stream == "stderr" {
			w = s.errOut
		}
		if err := s.print(w, o.Text); err != nil {
			return err
		}
		s.midLine = !strings.HasSuffix(o.Text, "\n")
	case o.Clear != nil:
		if s.clearing = true; !o.Clear.Wait {
			return s.clear()
		}
	case o.Display != nil:
		return s.value(seq, o.Display.Data)
	case o.Result != nil:
		return s.value(seq, o.Result)
	case o.Error != nil:
		text := o.Error.Traceback
		if text == "" {
			text = o.Error.Error()
		}
		if !s.colors {
			text = escapes.ReplaceAllString(text, "")
		}
		return s.line(s.errOut, text)
	case o.Kernel != nil && o.Kernel.Restarted:
		s.note("the kernel began anew, what cells before had defined is gone: %s", o.Kernel.Reason)
		s.anew()
	}
	return nil
}

// escapes are the colours and such of terminals.
var escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[ -/]*[@-~]")

// print prints text as it is.
func (s *shower) print(w io.Writer, text string) error {
	if err := s.clear(); err != nil {
		return err
	}
	if s.size != nil && (w == s.out || s.colors) {
		s.shown.add(text, s.size().Cols)
	}
	_, err := io.WriteString(w, text)
	return err
}

// clear takes back what the cell has shown, if that is due.
func (s *shower) clear() error {
	if !s.clearing || s.size == nil {
		return nil
	}
	text := s.shown.erase(s.size().Rows)
	s.anew()
	_, err := io.WriteString(s.out, text)
	return err
}

// anew: what is shown by now stays, and the cursor is at the left edge.
func (s *shower) anew() {
	s.shown, s.clearing, s.midLine = extent{}, false, false
}

// line prints text on lines of its own.
func (s *shower) line(w io.Writer, text string) error {
	if err := s.clear(); err != nil {
		return err
	}
	if s.midLine {
		text = "\n" + text
	}
	s.midLine = false
	return s.print(w, strings.TrimRight(text, "\n")+"\n")
}

// extensions of files, by MIME type, of what a terminal cannot print: the
// first type that a value has is taken.
var extensions = []struct{ mime, ext string }{
	{"image/png", ".png"},
	{"image/jpeg", ".jpg"},
	{"image/gif", ".gif"},
	{"image/webp", ".webp"},
	{"image/svg+xml", ".svg"},
	{"application/pdf", ".pdf"},
	{"audio/wav", ".wav"},
	{"audio/mpeg", ".mp3"},
	{"audio/ogg", ".ogg"},
	{"video/mp4", ".mp4"},
	{"video/webm", ".webm"},
}

// value prints a value in the form that tells most: an image or the like,
// text, or a page.
func (s *shower) value(seq int64, b client.Bundle) error {
	for _, e := range extensions {
		if b[e.mime] == nil {
			continue
		}
		data := b.Bytes(e.mime)
		if e.mime == "image/svg+xml" {
			data = []byte(b.SVG())
		}
		if len(data) == 0 {
			continue
		}
		if picture := s.inline.draw(e.mime, data); picture != "" {
			err := s.line(s.out, picture)
			s.anew() // nobody knows how high it is
			return err
		}
		return s.file(seq, e.ext, data)
	}
	// A plot that is a page has its data as text beside it.
	page := b.HTML() != "" && (b.Text() == "" || b["application/vnd.plotly.v1+json"] != nil)
	switch {
	case page:
		return s.file(seq, ".html", []byte(b.HTML()))
	case b.Text() != "":
		return s.line(s.out, b.Text())
	case b.Markdown() != "":
		return s.line(s.out, b.Markdown())
	case b.LaTeX() != "":
		return s.line(s.out, b.LaTeX())
	case b.JSON() != nil:
		return s.line(s.out, string(b.JSON()))
	case len(b) > 0:
		s.note("nothing to show: the value is of type %s", printable(strings.Join(b.Types(), ", ")))
	}
	return nil
}

// file writes what cannot be printed and says where it is.
func (s *shower) file(seq int64, ext string, data []byte) error {
	var err error
	if s.dir == "" {
		s.dir, err = os.MkdirTemp("", "cubby-code-")
	} else {
		err = os.MkdirAll(s.dir, 0o755)
	}
	if err != nil {
		return err
	}
	s.files++
	path := filepath.Join(s.dir, fmt.Sprintf("%s-%d-%d%s", s.id, seq, s.files, ext))
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return err
	}
	return s.line(s.out, path)
}

// end says what of a cell's end the output does not.
func (s *shower) end(e client.Execution) {
	if s.midLine && s.wholeLines {
		_ = s.line(s.out, "") // a terminal that is gone: the next read tells
	}
	s.files = 0
	s.anew()
	if e.OutputPruned {
		s.note("the output was removed to make room for later ones")
	}
	switch {
	case e.Reason == "timeout":
		s.note("the time of the cell was up, and %s; --timeout sets another limit, 0 none", orElse(e.Message, "the kernel kept its state"))
	case e.Success, e.Reason == "exited", e.Reason == "killed":
	case e.Error != nil:
		s.note("%s", e.Error.Message)
	default:
		s.note("%v", e.Err())
	}
}

// imageProtocol is how a terminal takes images.
type imageProtocol int

const (
	noImages imageProtocol = iota
	kittyImages
	itermImages
)

// protocolOf tells by the environment what the terminal understands. Inside of
// a multiplexer that is nothing.
func protocolOf(getenv func(string) string) imageProtocol {
	name, program := getenv("TERM"), getenv("TERM_PROGRAM")
	switch {
	case getenv("TMUX") != "" || strings.HasPrefix(name, "screen") || strings.HasPrefix(name, "tmux"):
		return noImages
	case name == "xterm-kitty" || name == "xterm-ghostty" || program == "ghostty" || getenv("KITTY_WINDOW_ID") != "":
		return kittyImages
	case program == "iTerm.app" || program == "WezTerm" || getenv("LC_TERMINAL") == "iTerm2":
		return itermImages
	}
	return noImages
}

// draw returns what shows an image, "" when the terminal cannot.
func (p imageProtocol) draw(mime string, data []byte) string {
	text := base64.StdEncoding.EncodeToString(data)
	switch {
	case p == kittyImages && mime == "image/png":
		// Pieces of 4 KiB at most; all but the last say that more follows.
		var b strings.Builder
		head := "a=T,f=100,"
		for {
			piece := text[:min(4096, len(text))]
			text = text[len(piece):]
			more := 0
			if text != "" {
				more = 1
			}
			fmt.Fprintf(&b, "\x1b_G%sm=%d;%s\x1b\\", head, more, piece)
			if head = ""; more == 0 {
				return b.String()
			}
		}
	case p == itermImages && strings.HasPrefix(mime, "image/") && mime != "image/svg+xml":
		return fmt.Sprintf("\x1b]1337;File=inline=1;size=%d:%s\a", len(data), text)
	}
	return ""
}
