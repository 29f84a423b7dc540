package prompt

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/render"
)

// How long the prompt waits for what a kernel says about code: an answer that
// was asked for, and one without which the prompt can do.
const (
	askPatience   = 22 * time.Second // the sandbox gives a kernel 20 for its first
	checkPatience = 2 * time.Second
)

// ask waits for an answer about code. Ctrl-C gives it up; what else is typed
// meanwhile is kept.
func (p *prompt) ask(ctx context.Context, patience time.Duration, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	keys := p.edit.Keys.Pieces()
	if p.edit.Keys.Interrupted() {
		cancel()
	}
	for {
		select {
		case err := <-done:
			return err
		case piece, ok := <-keys:
			if !ok {
				keys = nil // the next read tells
			} else if p.edit.Keys.Hold(piece) {
				cancel()
			}
		case <-p.interrupts:
			cancel()
		}
	}
}

// goesOn reports whether more lines belong to a cell, by what the kernel says. Of
// one that cannot say, or is busy with another cell, a line with a backslash at its
// end goes on. Two empty lines end everything.
func (p *prompt) goesOn(ctx context.Context, lines []string) bool {
	if givenUp(lines) {
		return false
	}
	var check client.CodeCompleteness
	err := p.ask(ctx, checkPatience, func(ctx context.Context) (err error) {
		check, err = p.client.CheckCode(ctx, p.id, p.request.Kernel, strings.Join(lines, "\n"))
		return err
	})
	if err != nil || check.Status == "unknown" {
		return strings.HasSuffix(lines[len(lines)-1], `\`)
	}
	return check.Status == "incomplete"
}

// givenUp reports that lines end with two empty ones.
func givenUp(lines []string) bool {
	n := len(lines)
	return n > 2 && strings.TrimSpace(lines[n-1]) == "" && strings.TrimSpace(lines[n-2]) == ""
}

// completion is what the tab key does in a line behind others: it completes what
// stands before the cursor as far as that is certain, or shows how it can go on.
func (p *prompt) completion(ctx context.Context, lines []string) func(line string, pos int) (string, int) {
	return func(line string, pos int) (string, int) {
		before := ""
		if len(lines) > 0 {
			before = strings.Join(lines, "\n") + "\n"
		}
		first := utf8.RuneCountInString(before)
		cursor := first + utf8.RuneCountInString(line[:pos])
		var got client.CodeCompletion
		err := p.ask(ctx, askPatience, func(ctx context.Context) (err error) {
			got, err = p.client.CompleteCode(ctx, p.id, p.request.Kernel, client.CodePosition{Code: before + line, Cursor: &cursor})
			return err
		})
		start, end := got.CursorStart-first, got.CursorEnd-first
		text := []rune(line)
		if err != nil || start < 0 || start > cursor-first || end < cursor-first || end > len(text) {
			return line, pos
		}
		// What a terminal acts upon is no name.
		matches := slices.DeleteFunc(got.Matches, func(m string) bool {
			return m == "" || strings.ContainsFunc(m, func(r rune) bool { return !unicode.IsPrint(r) })
		})
		if len(matches) == 0 {
			return line, pos
		}
		typed, common := string(text[start:cursor-first]), commonPrefix(matches)
		if !got.Truncated && common != typed && (len(matches) == 1 || strings.HasPrefix(common, typed)) {
			return string(text[:start]) + common + string(text[end:]), len(string(text[:start])) + len(common)
		}
		if len(matches) > 1 {
			fmt.Fprint(p.edit, inColumns(matches, p.edit.Width(), got.Truncated))
		}
		return line, pos
	}
}

// commonPrefix is what all texts begin with.
func commonPrefix(texts []string) string {
	common := texts[0]
	for _, t := range texts[1:] {
		for !strings.HasPrefix(t, common) {
			_, n := utf8.DecodeLastRuneInString(common)
			common = common[:len(common)-n]
		}
	}
	return common
}

// maxShown is how many names the tab key shows.
const maxShown = 100

// inColumns writes names below each other in as many columns as there is room for.
// With more there are others.
func inColumns(names []string, width int, more bool) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	left := max(len(names)-maxShown, 0)
	names = names[:len(names)-left]
	wide := func(name string) (n int) {
		for _, r := range name {
			n += render.Width(r)
		}
		return n
	}
	widest := 0
	for _, n := range names {
		widest = max(widest, wide(n))
	}
	across := max(width/(widest+2), 1)
	rows := (len(names) + across - 1) / across
	var b strings.Builder
	for row := range rows {
		line := ""
		for i := row; i < len(names); i += rows {
			line += names[i] + strings.Repeat(" ", widest+2-wide(names[i]))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	switch {
	case more:
		b.WriteString("… and more\n")
	case left > 0:
		fmt.Fprintf(&b, "… and %d more\n", left)
	}
	return b.String()
}

// What asks for help: a name with question marks before or behind it.
var helpBefore, helpBehind = regexp.MustCompile(`^(\?\??)\s*([\pL_$][\pL\pN_$.]*)$`), regexp.MustCompile(`^([\pL_$.][\pL\pN_$.:]*)(\?\??)$`)

// helpFor is the name that a line asks about, "" for none, and the level of
// detail.
func helpFor(language, line string) (name string, detail int) {
	line = strings.TrimSpace(line)
	marks := ""
	if m := helpBefore.FindStringSubmatch(line); m != nil && (language == "python" || language == "node") {
		marks, name = m[1], m[2] // R has an operator for it
	} else if m := helpBehind.FindStringSubmatch(line); m != nil && (language == "python" || language == "node" || language == "r") {
		name, marks = m[1], m[2]
	}
	return name, max(len(marks)-1, 0)
}

// help shows what the kernel knows about a name. False: it cannot say.
func (p *prompt) help(ctx context.Context, name string, detail int) bool {
	var got client.CodeInspection
	err := p.ask(ctx, askPatience, func(ctx context.Context) (err error) {
		got, err = p.client.InspectCode(ctx, p.id, p.request.Kernel, client.CodePosition{Code: name}, detail)
		return err
	})
	switch {
	case err != nil && p.language == "python":
		return false // IPython answers it as a cell, too
	case err != nil:
		p.show.Note("%v", err)
	case !got.Found || got.Text() == "":
		p.show.Note("the kernel knows nothing of %s", name)
	default:
		_ = p.show.Line(got.Text()) // a terminal that is gone: the next read tells
	}
	return true
}
