package markdown

import (
	"strings"
)

// fence is an open code block.
type fence struct {
	mark   rune
	length int
	indent int // columns that its lines are moved by
}

// maxIndent bounds what is kept of the space before a line, maxQuoted how deep a
// quotation is one.
const (
	maxIndent = 40
	maxQuoted = 8
)

// start finds out what the line is. It returns true when the line has text, which is
// what is left of it then; false when more of it must be known, or it is something
// else.
func (r *Renderer) start(final bool) (text bool) {
	if r.code != nil {
		return r.startCode(final)
	}
	if len(r.line) > maxHeld {
		r.endTable()
		line := r.line
		r.line = nil
		r.textLine(line)
		return false
	}
	l := scan{line: r.line, final: final}
	first, others, quoted := "", "", 0
	for {
		spaces := min(l.spaces(), maxIndent)
		if l.more() {
			return false
		}
		c := l.peek()
		switch {
		case c == 0:
			if quoted > 0 { // an empty line of a quotation
				r.endTable()
				r.open()
				r.flow.begin(first, "", Dim)
				r.mode, r.line = inText, r.line[:0]
				return false
			}
			r.endTable()
			r.blank = true
			r.line = r.line[:0]
			return false
		case c == '>' && spaces < 4 && quoted < maxQuoted:
			l.at++
			if l.more() {
				return false
			}
			if l.peek() == ' ' {
				l.at++
			}
			first, others, quoted = first+"│ ", others+"│ ", quoted+1
			continue
		case c == '|' && quoted == 0:
			r.mode = inRow
			return false
		}
		r.endTable()
		switch kind, n := l.classify(c); kind {
		case undecided:
			return false
		case fenceLine:
			r.mode, r.code = inInfo, &fence{c, n, spaces}
			r.line = r.line[l.at+n:]
			return false
		case ruleLine:
			r.open()
			r.flow.begin(first, "", Dim)
			r.flow.put(strings.Repeat("─", max(min(r.o.Columns()-r.flow.col, 40), 1)), Dim)
			r.mode, r.line = inText, r.line[:0]
			return false
		case headingLine:
			r.open()
			r.flow.begin(first, others, Dim)
			if !r.o.Colors {
				r.flow.text(strings.Repeat("#", n)+" ", 0)
			}
			r.flow.style = Bold
			r.mode, r.line = inHeading, r.line[l.at+n+1:]
			return true
		case itemLine:
			r.open()
			mark := string(r.line[l.at : l.at+n])
			if n == 1 {
				mark = "•"
			}
			lead := strings.Repeat(" ", spaces)
			r.flow.begin(first, "", Dim)
			r.flow.put(lead+mark+" ", 0)
			r.flow.edge, r.flow.indent = r.flow.col, others+lead+strings.Repeat(" ", width(mark)+1)
			r.mode, r.line = inText, r.line[l.at+n+1:]
			return true
		default:
			r.open()
			lead := strings.Repeat(" ", spaces)
			if quoted > 0 {
				lead = ""
			}
			r.flow.begin(first, "", Dim)
			r.flow.put(lead, 0)
			r.flow.edge, r.flow.indent = r.flow.col, others+lead
			r.mode, r.line = inText, r.line[l.at:]
			return true
		}
	}
}

// scan looks at the beginning of a line.
type scan struct {
	line  []rune
	at    int
	final bool // the line is whole
}

// more reports that what comes next is not known.
func (s *scan) more() bool { return !s.final && s.at >= len(s.line) }

func (s *scan) peek() rune {
	if s.at < len(s.line) {
		return s.line[s.at]
	}
	return 0
}

// spaces goes over spaces and returns their columns.
func (s *scan) spaces() (n int) {
	for ; s.at < len(s.line); s.at++ {
		switch s.line[s.at] {
		case ' ':
			n++
		case '\t':
			n += 4
		default:
			return n
		}
	}
	return n
}

type lineKind int

const (
	undecided lineKind = iota
	textLine
	fenceLine // n: of its marks
	ruleLine
	headingLine // n: its level
	itemLine    // n: characters of its mark
)

// classify tells what begins at a character that is no space.
func (s *scan) classify(c rune) (kind lineKind, n int) {
	rest := s.line[s.at:]
	run := 0
	for run < len(rest) && rest[run] == c {
		run++
	}
	whole := run == len(rest) && !s.final // more of the same may come
	after := rune('\n')
	if run < len(rest) {
		after = rest[run]
	}
	switch c {
	case '#':
		switch {
		case run > 6:
			return textLine, 0
		case whole:
			return undecided, 0
		case after == ' ':
			return headingLine, run
		}
	case '`', '~':
		switch {
		case run >= 3 && !whole:
			// A line that has its own end is text: ```x```
			if c == '`' && strings.ContainsRune(string(rest[run:]), '`') {
				return textLine, 0
			}
			if !s.final && len(rest) < maxHeld {
				return undecided, 0 // until the end of the line
			}
			if s.final {
				return fenceLine, run
			}
		case whole && run <= maxHeld:
			return undecided, 0
		}
	case '-', '*', '_', '+':
		if kind := s.rule(rest, c); kind != textLine {
			return kind, 0
		}
		switch {
		case c == '_' || run > 1:
		case whole:
			return undecided, 0
		case after == ' ' || after == '\t':
			return itemLine, 1
		}
	case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		digits := 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		switch {
		case digits > 4:
		case digits == len(rest):
			if !s.final {
				return undecided, 0
			}
		case rest[digits] == '.' || rest[digits] == ')':
			if digits+1 == len(rest) {
				if !s.final {
					return undecided, 0
				}
			} else if rest[digits+1] == ' ' {
				return itemLine, digits + 1
			}
		}
	}
	return textLine, 0
}

// rule tells a line of marks alone, as --- is.
func (s *scan) rule(rest []rune, c rune) lineKind {
	if c == '+' {
		return textLine
	}
	marks := 0
	for _, x := range rest {
		switch {
		case x == c:
			marks++
		case x != ' ':
			return textLine
		}
	}
	switch {
	case s.final && marks >= 3:
		return ruleLine
	case s.final || len(rest) > 80:
		return textLine
	}
	return undecided
}

// startCode finds out whether a line ends the code block. False: it is not known yet,
// or it does.
func (r *Renderer) startCode(final bool) bool {
	l := scan{line: r.line, final: final}
	spaces := l.spaces()
	marks := 0
	for l.peek() == r.code.mark {
		l.at++
		marks++
	}
	l.spaces()
	switch {
	case l.at < len(r.line), spaces > 3+r.code.indent, final && marks < r.code.length, len(r.line) > 200:
		r.mode = inCode
		r.codeText()
	case final:
		r.code, r.line = nil, r.line[:0]
	}
	return false
}

// openCode begins a code block, whose info says what it is.
func (r *Renderer) openCode(info string) {
	r.open()
	if name, _, _ := strings.Cut(strings.TrimSpace(info), " "); name != "" {
		r.flow.put(strings.Repeat(" ", r.code.indent)+name, Dim)
		r.flow.newline()
	}
}

// codeText shows what there is of a line of code, which is never broken: it can be
// copied.
func (r *Renderer) codeText() {
	line := r.line
	if r.flow.col == 0 {
		if r.open(); len(line) == 0 {
			return
		}
		r.flow.put(strings.Repeat(" ", r.code.indent+2), 0)
		for n := r.code.indent; n > 0 && len(line) > 0 && line[0] == ' '; n-- {
			line = line[1:]
		}
	}
	r.flow.put(tabs(string(line)), Code)
	r.line = r.line[:0]
}
