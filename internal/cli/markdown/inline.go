package markdown

import (
	"slices"
	"strings"
	"unicode"
)

// inline shows what of the line is known to look as it does.
func (r *Renderer) inline(final bool) {
	p := inliner{r.prev, r.o.Colors, r.flow.text}
	n := p.read(r.line, final, 0)
	r.line, r.prev = append(r.line[:0], r.line[n:]...), p.prev
}

// inliner reads the text of a line.
type inliner struct {
	prev   rune // the character before
	colors bool
	emit   func(string, Style)
}

// read emits as much as it can and returns how many characters that were.
func (p *inliner) read(line []rune, final bool, style Style) (n int) {
	for n < len(line) {
		took := p.token(line[n:], final, style)
		if took == 0 {
			return n
		}
		n += took
		p.prev = line[n-1]
	}
	return n
}

// special begins what is more than a character.
const special = "\\`*_~[!<&"

// token emits what the line begins with; 0: its end is not there yet.
func (p *inliner) token(line []rune, final bool, style Style) int {
	final = final || len(line) > maxHeld
	took, known := 0, true
	switch line[0] {
	case '\\':
		took, known = p.escaped(line, final, style)
	case '`':
		took, known = p.codeSpan(line, final, style)
	case '*', '_', '~':
		took, known = p.emphasis(line, final, style)
	case '[':
		took, known = p.link(line, 0, final, style)
	case '!':
		if len(line) == 1 {
			known = final
		} else if line[1] == '[' {
			took, known = p.link(line, 1, final, style)
		}
	case '<':
		took, known = p.address(line, final, style)
	case '&':
		took, known = p.entity(line, final, style)
	default:
		took = slices.IndexFunc(line, func(c rune) bool { return strings.ContainsRune(special, c) })
		if took < 0 {
			took = len(line)
		}
		p.emit(string(line[:took]), style)
		return took
	}
	switch {
	case !known:
		return 0
	case took == 0: // it is what it is
		took = runOf(line)
		p.emit(string(line[:took]), style)
	}
	return took
}

// runOf is how often the first character comes.
func runOf(line []rune) int {
	n := 1
	for n < len(line) && line[n] == line[0] && strings.ContainsRune("`*_~", line[0]) {
		n++
	}
	return n
}

func (p *inliner) escaped(line []rune, final bool, style Style) (took int, known bool) {
	if len(line) == 1 {
		return 0, final
	}
	if c := line[1]; c < 0x80 && (unicode.IsPunct(c) || unicode.IsSymbol(c)) {
		p.emit(string(c), style)
		return 2, true
	}
	return 0, true
}

// codeSpan is what stands between as many backticks.
func (p *inliner) codeSpan(line []rune, final bool, style Style) (took int, known bool) {
	n := runOf(line)
	if n == len(line) {
		return 0, final
	}
	end, known := endOfCode(line, n, final)
	if end < 0 {
		return 0, known
	}
	text := string(line[n : end-n])
	if t := strings.TrimSpace(text); t != "" && strings.HasPrefix(text, " ") && strings.HasSuffix(text, " ") {
		text = text[1 : len(text)-1]
	}
	if !p.colors {
		text = "`" + text + "`"
	}
	p.emit(text, style|Code)
	return end, true
}

// endOfCode is where a span of code ends that n backticks begin; -1: nowhere.
func endOfCode(line []rune, n int, final bool) (end int, known bool) {
	for i := n; i < len(line); {
		if line[i] != '`' {
			i++
			continue
		}
		run := runOf(line[i:])
		if i+run == len(line) && !final {
			return -1, false
		}
		if i += run; run == n {
			return i, true
		}
	}
	return -1, final
}

func wordRune(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }

// emphasis is what stands between marks.
func (p *inliner) emphasis(line []rune, final bool, style Style) (took int, known bool) {
	n := runOf(line)
	mark := line[0]
	switch {
	case n == len(line):
		return 0, final
	case n > 3, mark == '~' && n != 2, unicode.IsSpace(line[n]), mark == '_' && wordRune(p.prev):
		return 0, true
	}
	end, known := endOfEmphasis(line, n, final)
	if end < 0 {
		return 0, known
	}
	inner := style | []Style{Italic, Bold, Bold | Italic}[n-1]
	if mark == '~' {
		inner = style | Struck
	}
	in := inliner{mark, p.colors, p.emit}
	in.read(line[n:end-n], true, inner)
	return end, true
}

// endOfEmphasis is where it ends that n marks begin; -1: nowhere.
func endOfEmphasis(line []rune, n int, final bool) (end int, known bool) {
	mark := line[0]
	for i := n; i < len(line); {
		switch line[i] {
		case '\\':
			i += 2
			continue
		case '`':
			run := runOf(line[i:])
			code, known := endOfCode(line[i:], run, final)
			if !known {
				return -1, false
			}
			if i += run; code > 0 {
				i += code - run
			}
			continue
		case mark:
		default:
			i++
			continue
		}
		run := runOf(line[i:])
		if i+run == len(line) && !final {
			return -1, false
		}
		closes := !unicode.IsSpace(line[i-1]) && (run == n || run > 2 || run > n && n == 2)
		if mark == '_' && i+run < len(line) && wordRune(line[i+run]) {
			closes = false
		}
		if i += run; closes && run >= n {
			return i, true
		}
	}
	return -1, final
}

// link is a link or, with a mark of one character before it, an image.
func (p *inliner) link(line []rune, before int, final bool, style Style) (took int, known bool) {
	depth, end := 0, -1
	for i := before; i < len(line) && end < 0; i++ {
		switch line[i] {
		case '\\':
			i++
		case '[':
			depth++
		case ']':
			if depth--; depth == 0 {
				end = i
			}
		}
	}
	switch {
	case end < 0, end+1 == len(line):
		return 0, final
	case line[end+1] != '(':
		return 0, true
	}
	depth = 0
	for i := end + 1; i < len(line); i++ {
		switch line[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth > 0 {
				continue
			}
			text, target := line[before+1:end], string(line[end+2:i])
			target, _, _ = strings.Cut(strings.TrimSpace(target), ` "`)
			target = strings.Trim(target, "<>")
			in := inliner{' ', p.colors, p.emit}
			in.read(text, true, style|Link)
			if shown := string(text); target != "" && target != shown && target != "mailto:"+shown {
				if shown != "" {
					p.emit(" (", style)
				}
				p.emit(target, style|Dim)
				if shown != "" {
					p.emit(")", style)
				}
			}
			return i + 1, true
		}
	}
	return 0, final
}

// address is a URL in angle brackets.
func (p *inliner) address(line []rune, final bool, style Style) (took int, known bool) {
	for _, scheme := range []string{"<http://", "<https://", "<mailto:"} {
		have := string(line[:min(len(line), len(scheme))])
		if have != scheme {
			if !final && len(have) == len(line) && strings.HasPrefix(scheme, have) {
				return 0, false
			}
			continue
		}
		end := slices.IndexFunc(line, func(c rune) bool { return c == '>' || c == ' ' })
		switch {
		case end < 0:
			return 0, final
		case line[end] == '>':
			p.emit(strings.TrimPrefix(string(line[1:end]), "mailto:"), style|Link)
			return end + 1, true
		}
	}
	return 0, true
}

// entities are those that models write for what Markdown would read otherwise.
var entities = []struct{ name, text string }{
	{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}, {"&quot;", `"`}, {"&#39;", "'"}, {"&nbsp;", "\u00a0"},
}

func (p *inliner) entity(line []rune, final bool, style Style) (took int, known bool) {
	for _, e := range entities {
		have := string(line[:min(len(line), len(e.name))])
		if have == e.name {
			p.emit(e.text, style)
			return len(e.name), true
		}
		if !final && len(line) < len(e.name) && strings.HasPrefix(e.name, have) {
			return 0, false
		}
	}
	return 0, true
}
