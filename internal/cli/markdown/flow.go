package markdown

import (
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/cli/render"
)

// Style is how text looks.
type Style uint8

// The styles, which may be joined.
const (
	Bold Style = 1 << iota
	Dim
	Italic
	Struck
	Code // a colour of its own
	Link
)

// sgr is the escape sequence of a style.
func (s Style) sgr() string {
	var codes []string
	for _, c := range []struct {
		style Style
		code  int
	}{{Bold, 1}, {Dim, 2}, {Italic, 3}, {Link, 4}, {Struck, 9}, {Code, 36}} {
		if s&c.style != 0 {
			codes = append(codes, strconv.Itoa(c.code))
		}
	}
	return "\x1b[" + strings.Join(codes, ";") + "m"
}

// span is text of one style.
type span struct {
	text  string
	style Style
}

// width is how many columns a text takes.
func width(s string) (n int) {
	for _, c := range s {
		n += render.Width(c)
	}
	return n
}

// flow sets words into lines.
type flow struct {
	r      *Renderer
	col    int    // where the cursor is
	word   []span // the one that is being read, and its columns
	wide   int
	space  int    // columns of the space before it
	edge   int    // of this line: where its text begins
	indent string // what the lines that follow begin with
	style  Style
	shown  Style // that the terminal is in
	buffer strings.Builder
}

// dirty reports whether the line has something.
func (f *flow) dirty() bool { return f.col > 0 || len(f.word) > 0 }

// put shows text where the cursor is.
func (f *flow) put(text string, style Style) {
	if text == "" {
		return
	}
	style |= f.r.o.Base
	if strings.TrimSpace(text) == "" { // it looks the same in most styles
		if style = f.shown; style&(Link|Struck) != 0 {
			style = f.r.o.Base
		}
	}
	f.turn(style)
	f.buffer.WriteString(text)
	f.col += width(text)
}

// turn makes the terminal show what follows in a style.
func (f *flow) turn(style Style) {
	if !f.r.o.Colors || style == f.shown {
		return
	}
	if f.shown != 0 {
		f.buffer.WriteString("\x1b[0m")
	}
	if f.shown = style; style != 0 {
		f.buffer.WriteString(style.sgr())
	}
}

// begin starts a line of text with what stands before it, and what the lines begin with
// that it is broken into.
func (f *flow) begin(first, others string, style Style) {
	f.put(first, style)
	f.indent, f.edge = others, f.col
}

// text adds text to the line: words and spaces.
func (f *flow) text(s string, style Style) {
	style |= f.style
	for _, c := range s {
		switch w := render.Width(c); {
		case c == ' ' || c == '\t':
			f.end()
			if f.col > f.edge {
				f.space++
			}
		case w == 2: // scripts that are written without spaces
			f.end()
			f.add(string(c), w, style)
			f.end()
		default:
			f.add(string(c), w, style)
		}
	}
}

func (f *flow) add(s string, w int, style Style) {
	if n := len(f.word); n > 0 && f.word[n-1].style == style {
		f.word[n-1].text += s
	} else {
		f.word = append(f.word, span{s, style})
	}
	f.wide += w
}

// end shows the word, on a new line if there is no room on this one.
func (f *flow) end() {
	if len(f.word) == 0 {
		return
	}
	if columns := f.r.o.Columns(); f.col+f.space+f.wide > columns && f.col > f.edge {
		f.feed()
		f.put(f.indent, Dim)
		f.edge = f.col
	} else {
		f.put(strings.Repeat(" ", f.space), 0)
	}
	for _, s := range f.word {
		f.put(s.text, s.style)
	}
	f.word, f.wide, f.space = nil, 0, 0
}

// newline ends the line.
func (f *flow) newline() {
	f.end()
	f.feed()
	f.edge, f.indent, f.style = 0, "", 0
}

func (f *flow) feed() {
	f.turn(0)
	f.buffer.WriteByte('\n')
	f.col, f.space = 0, 0
}

// flush sends what is shown to the terminal.
func (f *flow) flush() {
	f.r.print(f.buffer.String())
	f.buffer.Reset()
}
