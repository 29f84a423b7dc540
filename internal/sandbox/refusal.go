package sandbox

import "fmt"

// ThreadFull is the cause of the refusal to run another sandbox in a thread.
type ThreadFull struct {
	Max int // as many run
	// All: in all threads of the tenant together, and otherwise in the one.
	All bool
}

func (e *ThreadFull) Error() string {
	if e.All {
		return fmt.Sprintf("%d run in threads", e.Max)
	}
	return fmt.Sprintf("%d run in the thread", e.Max)
}

// ImportRefusal says why nothing was imported out of a source.
type ImportRefusal string

const (
	ImportNoSource    ImportRefusal = "no source"    // none was named, or not all of it
	ImportNoSandbox   ImportRefusal = "no sandbox"   // of that id, for the caller
	ImportOtherThread ImportRefusal = "other thread" // the sandbox is in another one
	ImportNotExported ImportRefusal = "not exported" // the sandbox did not give it out
)

// ImportRefused is the cause of the refusal to import.
type ImportRefused struct {
	Why ImportRefusal
	// Of ImportNoSandbox: the id as it was named, quoted, and what became of the
	// sandbox; "" where that is not known.
	Sandbox, Fate string
}

func (e *ImportRefused) Error() string { return string(e.Why) }
