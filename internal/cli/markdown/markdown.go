// Package markdown shows Markdown on a terminal while it is being written. What it has
// printed it never prints again or takes back: a word appears as soon as nothing that
// can follow changes how it looks, and what only its end explains, such as a table or
// something in bold, appears with that end. How the text is cut into pieces changes
// nothing.
//
// It is for the answers of language models: every line stands for itself, HTML is text,
// and nothing in the text reaches the terminal but as characters to be seen.
package markdown

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Options is how text is shown.
type Options struct {
	Columns func() int // of the terminal
	Colors  bool       // the terminal takes escape sequences for styles
	Base    Style      // of all text
}

// Renderer is an io.Writer of Markdown. [Renderer.Close] ends the text.
type Renderer struct {
	out  io.Writer
	o    Options
	err  error    // of out
	rest []byte   // the beginning of a character
	line []rune   // of the line that is read: what is not shown yet
	prev rune     // the character before it
	mode mode     // of the line
	flow flow     // words and where they are
	code *fence   // the code block that is open
	rows []string // of the table that is open
	// begun: something was shown; blank: an empty line comes before what is next.
	begun, blank bool
}

type mode int

const (
	atStart mode = iota // it is not known what the line is
	inText
	inHeading
	inCode // a line of a code block
	inRow  // of a table
	inInfo // the rest of a line that opens a code block
)

// maxHeld bounds what waits for its end, in characters of a line and bytes of a table:
// beyond it is shown as it is.
const (
	maxHeld  = 600
	maxTable = 32 << 10
)

// New returns a Renderer that prints to out.
func New(out io.Writer, o Options) *Renderer {
	if o.Columns == nil {
		o.Columns = func() int { return 80 }
	}
	r := &Renderer{out: out, o: o, prev: ' '}
	r.flow.r = r
	return r
}

// Write shows more text.
func (r *Renderer) Write(p []byte) (int, error) {
	text := p
	if len(r.rest) > 0 {
		text = append(r.rest, p...)
		r.rest = nil
	}
	for len(text) > 0 && r.err == nil {
		if !utf8.FullRune(text) {
			r.rest = append([]byte(nil), text...)
			break
		}
		c, n := utf8.DecodeRune(text)
		text = text[n:]
		r.next(c)
	}
	r.flow.flush()
	return len(p), r.err
}

// Close ends the text: what was held back is shown, and the last line is ended. More
// text would be another one.
func (r *Renderer) Close() error {
	if len(r.rest) > 0 {
		r.rest = nil
		r.next(utf8.RuneError)
	}
	if len(r.line) > 0 || r.mode != atStart || r.flow.dirty() {
		r.endLine()
	}
	r.endTable()
	r.flow.flush()
	r.code, r.begun, r.blank = nil, false, false
	return r.err
}

// next reads one character.
func (r *Renderer) next(c rune) {
	switch {
	case c == '\n':
		r.endLine()
		return
	case !visible(c):
		return
	}
	r.line = append(r.line, c)
	switch r.mode {
	case atStart:
		if r.start(false) {
			r.inline(false)
		}
	case inText, inHeading:
		r.inline(false)
	case inCode:
		r.codeText()
	case inRow:
		if len(r.line) > maxTable {
			r.endTable()
			line := r.line
			r.line = nil
			r.textLine(line)
		}
	case inInfo: // it is read as a whole
	}
}

// textLine shows the beginning of a line as text, whatever it looks like.
func (r *Renderer) textLine(line []rune) {
	r.open()
	r.flow.begin("", "", 0)
	r.mode = inText
	for _, c := range line {
		r.line = append(r.line, c)
		r.inline(false)
	}
}

// visible reports whether a character is shown: what moves a cursor, or the order of
// what is around it, is not.
func visible(c rune) bool {
	switch {
	case c == '\t':
		return true
	case c < ' ', c >= 0x7f && c < 0xa0, c >= 0x202a && c <= 0x202e, c >= 0x2066 && c <= 0x2069, c == 0x200e, c == 0x200f, c == 0x61c, c == 0xfeff:
		return false
	}
	return true
}

// endLine shows what is left of a line.
func (r *Renderer) endLine() {
	if r.mode == atStart {
		r.start(true)
	}
	if r.mode == inText || r.mode == inHeading {
		r.inline(true)
	}
	switch r.mode {
	case inInfo:
		r.openCode(string(r.line))
	case inRow:
		r.row(string(r.line))
	case inCode:
		r.flow.newline()
	case inText, inHeading:
		r.flow.newline()
	case atStart: // nothing
	}
	r.line, r.mode, r.prev = r.line[:0], atStart, ' '
}

// print sends text to the terminal.
func (r *Renderer) print(s string) {
	if r.err == nil && s != "" {
		_, r.err = io.WriteString(r.out, s)
	}
}

// open is called before a line shows something.
func (r *Renderer) open() {
	if r.blank && r.begun {
		r.flow.newline()
	}
	r.begun, r.blank = true, false
}

// tabs makes spaces of tabs.
func tabs(s string) string { return strings.ReplaceAll(s, "\t", "    ") }
