// Package render shows on the local terminal, or in a file or pipe, what a cell
// prints, returns and displays: text as it is, images where the terminal can draw
// them, and files for what it cannot. It also takes back what a cell takes back. It
// runs no code and asks the daemon nothing.
package render

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

// Options says where a Printer prints to.
type Options struct {
	Out, ErrOut io.Writer
	Note        func(format string, args ...any) // tells people a line beside the output
	Images      ImageProtocol                    // how the terminal behind Out draws them
	Colors      bool                             // ErrOut takes escape sequences
	Box         string                           // the sandbox's id, for names of files
	Dir         string                           // of files; "": a new one when it is needed
	WholeLines  bool                             // end what a cell prints with the end of a line
	// Size is that of the terminal that shows Out; nil: it is none, and what was
	// shown stays.
	Size func() *client.WindowSize
}

// Printer prints what cells show, of one cell after the other.
type Printer struct {
	Options
	files   int
	midLine bool // what was printed last did not end its line

	shown    extent // of what the cell may still take back
	clearing bool   // with the next output
}

// New returns a Printer.
func New(o Options) *Printer { return &Printer{Options: o} }

// Output prints one thing that cell seq shows.
func (s *Printer) Output(seq int64, o client.CodeOutput) error {
	switch {
	case o.Text != "":
		w := s.Out
		if o.Stream == "stderr" {
			w = s.ErrOut
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
		if !s.Colors {
			text = escapes.ReplaceAllString(text, "")
		}
		return s.line(s.ErrOut, text)
	case o.Kernel != nil && o.Kernel.Restarted:
		s.Note("the kernel began anew, what cells before had defined is gone: %s", o.Kernel.Reason)
		s.Keep()
	}
	return nil
}

// escapes are the colours and such of terminals.
var escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[ -/]*[@-~]")

// Line prints text on lines of its own.
func (s *Printer) Line(text string) error { return s.line(s.Out, text) }

// print prints text as it is.
func (s *Printer) print(w io.Writer, text string) error {
	if err := s.clear(); err != nil {
		return err
	}
	if s.Size != nil && (w == s.Out || s.Colors) {
		s.shown.add(text, s.Size().Cols)
	}
	_, err := io.WriteString(w, text)
	return err
}

// clear takes back what the cell has shown, if that is due.
func (s *Printer) clear() error {
	if !s.clearing || s.Size == nil {
		return nil
	}
	text := s.shown.erase(s.Size().Rows)
	s.Keep()
	_, err := io.WriteString(s.Out, text)
	return err
}

// Keep makes what is shown by now stay: the cursor is at the left edge, and later
// output takes nothing of it back.
func (s *Printer) Keep() {
	s.shown, s.clearing, s.midLine = extent{}, false, false
}

// line prints text on lines of its own.
func (s *Printer) line(w io.Writer, text string) error {
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
func (s *Printer) value(seq int64, b client.Bundle) error {
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
		if picture := s.Images.draw(e.mime, data); picture != "" {
			err := s.line(s.Out, picture)
			s.Keep() // nobody knows how high it is
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
		return s.line(s.Out, b.Text())
	case b.Markdown() != "":
		return s.line(s.Out, b.Markdown())
	case b.LaTeX() != "":
		return s.line(s.Out, b.LaTeX())
	case b.JSON() != nil:
		return s.line(s.Out, string(b.JSON()))
	case len(b) > 0:
		s.Note("nothing to show: the value is of type %s", format.Printable(strings.Join(b.Types(), ", ")))
	}
	return nil
}

// file writes what cannot be printed and says where it is.
func (s *Printer) file(seq int64, ext string, data []byte) error {
	var err error
	if s.Dir == "" {
		s.Dir, err = os.MkdirTemp("", "cubby-code-")
	} else {
		err = os.MkdirAll(s.Dir, 0o755)
	}
	if err != nil {
		return err
	}
	s.files++
	path := filepath.Join(s.Dir, fmt.Sprintf("%s-%d-%d%s", s.Box, seq, s.files, ext))
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return err
	}
	return s.line(s.Out, path)
}

// End says what of a cell's end the output does not.
func (s *Printer) End(e client.Execution) {
	if s.midLine && s.WholeLines {
		_ = s.line(s.Out, "") // a terminal that is gone: the next read tells
	}
	s.files = 0
	s.Keep()
	if e.OutputPruned {
		s.Note("the output was removed to make room for later ones")
	}
	switch {
	case e.Reason == "timeout":
		s.Note("the time of the cell was up, and %s; --timeout sets another limit, 0 none", cmp.Or(e.Message, "the kernel kept its state"))
	case e.Success, e.Reason == "exited", e.Reason == "killed":
	case e.Error != nil:
		s.Note("%s", e.Error.Message)
	default:
		s.Note("%v", e.Err())
	}
}

// ImageProtocol is how a terminal takes images.
type ImageProtocol int

const (
	NoImages ImageProtocol = iota
	KittyImages
	ITermImages
)

// ProtocolOf tells by the environment what the terminal understands. Inside of
// a multiplexer that is nothing.
func ProtocolOf(getenv func(string) string) ImageProtocol {
	name, program := getenv("TERM"), getenv("TERM_PROGRAM")
	switch {
	case getenv("TMUX") != "" || strings.HasPrefix(name, "screen") || strings.HasPrefix(name, "tmux"):
		return NoImages
	case name == "xterm-kitty" || name == "xterm-ghostty" || program == "ghostty" || getenv("KITTY_WINDOW_ID") != "":
		return KittyImages
	case program == "iTerm.app" || program == "WezTerm" || getenv("LC_TERMINAL") == "iTerm2":
		return ITermImages
	}
	return NoImages
}

// draw returns what shows an image, "" when the terminal cannot.
func (p ImageProtocol) draw(mime string, data []byte) string {
	text := base64.StdEncoding.EncodeToString(data)
	switch {
	case p == KittyImages && mime == "image/png":
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
	case p == ITermImages && strings.HasPrefix(mime, "image/") && mime != "image/svg+xml":
		return fmt.Sprintf("\x1b]1337;File=inline=1;size=%d:%s\a", len(data), text)
	}
	return ""
}
