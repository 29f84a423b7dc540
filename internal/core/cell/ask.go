package cell

import (
	"context"
	"errors"
	"regexp"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Questions to a kernel about code that is not run. They are no execs: no
// history has them, and cells go before them. WrongState when the kernel runs a
// cell, is starting or has ended; NotFound when there is none of this name:
// none is made. Timeout when it does not answer within 5 seconds, or 20 until it has
// answered one of the kind.

// Position is a place in code that a kernel is asked about.
type Position struct {
	Code   string
	Cursor *int // in Unicode code points; nil is the end of the code
}

// check returns the cursor.
func (p Position) check() (int, error) {
	switch {
	case len(p.Code) > sandbox.MaxCode:
		return 0, errs.E(errs.TooLarge, "code: longer than %d bytes", sandbox.MaxCode)
	case !utf8.ValidString(p.Code):
		return 0, errs.E(errs.Invalid, "code: not UTF-8")
	}
	end := utf8.RuneCountInString(p.Code)
	if p.Cursor == nil {
		return end, nil
	}
	if c := *p.Cursor; c < 0 || c > end {
		return 0, errs.E(errs.Invalid, "cursor_pos: %d is not in the code, which has %d characters", c, end)
	}
	return *p.Cursor, nil
}

// Complete returns how code can go on at a position.
func (ks *Kernels) Complete(ctx context.Context, id, name string, at Position) (kernel.Completion, error) {
	return ask(ks, ctx, id, name, at, func(ctx context.Context, c *guest.Client, cursor int) (kernel.Completion, error) {
		return c.CompleteCode(ctx, name, at.Code, cursor)
	})
}

// Inspect returns what the kernel knows about the name at a position, with
// detail 1 instead of 0 more of it. Its texts have no colours.
func (ks *Kernels) Inspect(ctx context.Context, id, name string, at Position, detail int) (kernel.Inspection, error) {
	if detail != 0 && detail != 1 {
		return kernel.Inspection{}, errs.E(errs.Invalid, "detail_level: %d is neither 0 nor 1", detail)
	}
	r, err := ask(ks, ctx, id, name, at, func(ctx context.Context, c *guest.Client, cursor int) (kernel.Inspection, error) {
		return c.InspectCode(ctx, name, at.Code, cursor, detail)
	})
	for mime, text := range r.Data {
		r.Data[mime] = overstrike.ReplaceAllString(withoutANSI(text), "")
	}
	return r, err
}

// overstrike is how texts for printers have what is bold or underlined, as R's
// help has it.
var overstrike = regexp.MustCompile(".\x08")

// Check returns whether code can be run as it stands.
func (ks *Kernels) Check(ctx context.Context, id, name, code string) (kernel.Completeness, error) {
	return ask(ks, ctx, id, name, Position{Code: code}, func(ctx context.Context, c *guest.Client, _ int) (kernel.Completeness, error) {
		return c.CheckCode(ctx, name, code)
	})
}

func ask[T any](
	ks *Kernels, ctx context.Context, id, name string, at Position,
	question func(ctx context.Context, c *guest.Client, cursor int) (T, error),
) (answer T, err error) {
	if err := sandbox.ValidateName("kernel", name); err != nil {
		return answer, err
	}
	cursor, err := at.check()
	if err != nil {
		return answer, err
	}
	_, r, done, err := ks.live.Use(ctx, id)
	if err != nil {
		return answer, err
	}
	defer done()
	answer, err = question(ctx, r.Guest, cursor)
	if errors.Is(err, errs.NotFound) {
		err = errNoKernel
	}
	return answer, err
}

var errNoKernel = errs.E(errs.NotFound, "no such kernel").Hint("create it, or name the language: then the code makes it")
