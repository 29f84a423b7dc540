package cell

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/excerpt"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Bounds of what an execution holds. A kernel can send anything.
const (
	// maxRecord is the longest record that is read: an output of 16 MiB and
	// what is around it.
	maxRecord = 17 << 20
	// maxShown and maxShownBytes bound the outputs of one execution together.
	maxShown      = 1000
	maxShownBytes = 32 << 20
	// maxTypes bounds the MIME types of one value.
	maxTypes = 64
	// maxMIME is the longest name of one, in bytes, and maxMetadata what may be
	// said about a value.
	maxMIME     = 127
	maxMetadata = 64 << 10
	// maxTexts bounds the pieces of a text that comes in pieces, and
	// maxFaultBytes each text of an error.
	maxTexts      = 10_000
	maxFaultBytes = 1 << 20
)

// Execution is a cell with what it has shown so far. Updates of displays and
// requests to clear are applied. All text is UTF-8.
type Execution struct {
	Exec sandbox.Exec
	// Stdout and Stderr are what was printed, under the reader's [Caps].
	// Requests to clear leave them.
	Stdout, Stderr string
	// StdoutEnd and StderrEnd are, with [Caps.Ends], the ends of texts that are not
	// whole.
	StdoutEnd, StderrEnd string
	// Count numbers the cell in its kernel's process; 0 when that is not known.
	Count int
	// Result is the value of the last expression; nil: none.
	Result  kernel.Bundle
	Outputs []Display
	// Error is why a finished execution did not succeed; nil when it did.
	Error *Error
	// KernelRestarted says why what earlier cells had made was gone when this
	// one began; "": it was not.
	KernelRestarted string
	Success         bool
	// Truncated has the length in characters of each text that is not whole:
	// "stdout", "stderr", "result.text/plain", "error.traceback", …
	Truncated map[string]int64
	// Pruned: the output was removed to make room for later ones.
	Pruned bool
}

// Display is a value that a cell showed on purpose. Values of the types that
// end in json are JSON of any kind, all others are strings.
type Display struct {
	Data     kernel.Bundle
	Metadata json.RawMessage // an object; nil: none
	ID       string          // "": it cannot be updated
}

// Error is what ended a cell early. Its texts have no colours.
type Error struct {
	Type      string // of the exception; "TimeoutError" and such when it was none
	Message   string
	Traceback string // lines; "": none
}

func newOutput(caps Caps) *output {
	return &output{stdout: newText(caps.Stdout, caps.Ends), stderr: newText(caps.Stderr, caps.Ends)}
}

// execution is what has come so far. Of what is missing only the counts of cut
// bytes are read.
func (o *output) execution(x sandbox.Exec, caps Caps, missing sandbox.Exit) Execution {
	truncated := make(map[string]int64)
	e := Execution{
		Exec: x, Success: succeeded(x), Truncated: truncated,
		Count:   o.count,
		Result:  capResult(o.result, caps.Result, truncated),
		Outputs: o.outputs(missing.RichCut),
		Error:   errorOf(x, o, caps, truncated),

		KernelRestarted: excerpt.First(o.restarted, maxFault),
	}
	if caps.Ends {
		e.Stdout, e.StdoutEnd = o.stdout.ends("stdout", missing.StdoutCut, truncated)
		e.Stderr, e.StderrEnd = o.stderr.ends("stderr", missing.StderrCut, truncated)
	} else {
		e.Stdout = o.stdout.text("stdout", missing.StdoutCut, truncated)
		e.Stderr = o.stderr.text("stderr", missing.StderrCut, truncated)
	}
	return e
}

// output assembles what a cell shows out of its journal. Nothing of it is
// trusted.
type output struct {
	// brief leaves out texts and displays.
	brief bool

	stdout, stderr textBuffer
	count          int
	result         kernel.Bundle
	fault          *Error // what the cell raised
	restarted      string // why the kernel began anew before the cell
	died           string // why it ended under it

	line     []byte // of rich output, as far as it came
	tooLong  bool   // the line is longer than is read
	shown    []*shownDisplay
	byID     map[string]*shownDisplay
	bytes    int  // of shown
	clearing bool // the next output removes what is shown
	left     int  // records that are not in the answer
}

// shownDisplay is a display and the places that show it.
type shownDisplay struct {
	Display
	places int
}

// add takes the next piece of the journal.
func (o *output) add(out sandbox.Output) {
	switch {
	case out.Stream == sandbox.Rich:
		o.addRich(out.Data)
	case o.brief:
	case out.Stream == sandbox.Stderr:
		o.clearIfDue()
		o.stderr.add(out.Data)
	default:
		o.clearIfDue()
		o.stdout.add(out.Data)
	}
}

// addRich splits rich output into records. The last line may be torn: it is no
// record until it has ended.
func (o *output) addRich(data []byte) {
	for len(data) > 0 {
		piece, rest, ended := bytes.Cut(data, []byte("\n"))
		data = rest
		if o.tooLong = o.tooLong || len(o.line)+len(piece) > maxRecord; !o.tooLong {
			o.line = append(o.line, piece...)
		}
		if !ended {
			return
		}
		if o.tooLong {
			o.left++
		} else if line := bytes.TrimSpace(o.line); len(line) > 0 {
			o.record(line)
		}
		o.line, o.tooLong = o.line[:0], false
	}
}

// record takes one line, which is a [kernel.Output].
func (o *output) record(line []byte) {
	if o.brief && bytes.HasPrefix(line, []byte(`{"display":`)) {
		return
	}
	if !utf8.Valid(line) {
		line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
	}
	if r := readRecord(line); r != nil {
		o.take(r)
	} else {
		o.left++
	}
}

func (o *output) take(r *record) {
	switch {
	case r.Display != nil:
		o.clearIfDue()
		o.display(Display{Data: bundle(r.Display.Data), Metadata: metadata(r.Display.Metadata), ID: r.Display.ID}, r.Display.Update)
	case r.Result != nil:
		o.clearIfDue()
		if o.result != nil {
			// Only the last value is the result, the others were shown.
			o.display(Display{Data: o.result}, false)
		}
		o.result, o.count = bundle(r.Result.Data), r.Result.Count
	case r.Error != nil:
		o.clearIfDue()
		lines := strings.Join(texts(r.Error.Traceback), "\n")
		o.fault = &Error{
			Type: excerpt.First(r.Error.Name, maxErrorType), Message: withoutANSI(firstBytes(r.Error.Value, maxFaultBytes)),
			Traceback: withoutANSI(firstBytes(lines, maxFaultBytes)),
		}
	case r.Clear != nil:
		o.clearing = true
		if !r.Clear.Wait {
			o.clearIfDue()
		}
	case r.Kernel != nil && r.Kernel.Restarted:
		o.restarted = r.Kernel.Reason
	case r.Kernel != nil:
		o.died = r.Kernel.Reason
	case r.Done != nil:
		o.count = r.Done.Count
	}
}

// clearIfDue removes what is shown. What was printed stays.
func (o *output) clearIfDue() {
	if o.clearing {
		o.clearing, o.shown, o.byID, o.bytes, o.result = false, nil, nil, 0, nil
	}
}

// display shows a value, or puts it in the places of the one that it updates.
// An update of what an earlier cell showed is shown here.
func (o *output) display(d Display, update bool) {
	if o.brief {
		return
	}
	old := o.byID[d.ID]
	if d.ID == "" {
		old = nil
	}
	size := d.size()
	switch {
	case old == nil:
		if len(o.shown) >= maxShown || o.bytes+size > maxShownBytes {
			o.left++
			return
		}
		now := &shownDisplay{Display: d, places: 1}
		o.shown = append(o.shown, now)
		o.bytes += size
		if d.ID != "" {
			if o.byID == nil {
				o.byID = make(map[string]*shownDisplay)
			}
			o.byID[d.ID] = now
		}
		return
	case !update:
		// The same id is shown again: both places are the newer value.
		if len(o.shown) >= maxShown {
			o.left++
			return
		}
		o.shown = append(o.shown, old)
		o.bytes += old.size()
		old.places++
	}
	more := (size - old.size()) * old.places
	if o.bytes+more > maxShownBytes {
		o.left++
		return
	}
	o.bytes += more
	old.Display = d
}

// size is what a display takes in an answer, roughly.
func (d Display) size() int {
	n := 128 + len(d.ID) + len(d.Metadata)
	for mime, v := range d.Data {
		n += len(mime) + len(v) + 64
	}
	return n
}

// outputs returns what is shown, and as the last one what is not.
func (o *output) outputs(cut int64) []Display {
	var all []Display
	for _, d := range o.shown {
		all = append(all, d.Display)
	}
	var missing []string
	if o.left > 0 {
		missing = append(missing, fmt.Sprintf("%d outputs are not part of this answer: they are too large, too many or damaged", o.left))
	}
	if cut > 0 {
		missing = append(missing, fmt.Sprintf("%d bytes of outputs were not kept", cut))
	}
	if missing != nil {
		all = append(all, Display{Data: kernel.Bundle{"text/plain": kernel.Quote("[" + strings.Join(missing, "; ") + "]")}})
	}
	return all
}

// held is what the output takes so far.
func (o *output) held() int64 {
	n := o.stdout.kept.Len() + o.stderr.kept.Len() + cap(o.stdout.end) + cap(o.stderr.end) + cap(o.line) + o.bytes
	for mime, v := range o.result {
		n += len(mime) + len(v)
	}
	return int64(n)
}

// recall takes what is known without the journal.
func (o *output) recall(stored json.RawMessage) {
	var r storedResult
	if stored == nil || json.Unmarshal(stored, &r) != nil {
		return
	}
	o.count, o.restarted, o.died = r.Count, r.KernelRestarted, r.KernelDied
	if r.Error != nil {
		o.fault = &Error{Type: r.Error.Type, Message: r.Error.Message}
	}
}
