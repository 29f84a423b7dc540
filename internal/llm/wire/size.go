package wire

import (
	"fmt"

	"github.com/cubbyhq/cubby/internal/llm"
)

// What one answer may have, more than any model says at once. A server that sends
// more is broken or means harm, and what it says would be kept in a thread for good.
const (
	// MaxCalls bounds the calls of tools.
	MaxCalls = 128

	maxWritten  = 8 << 20  // bytes of its text, thoughts and arguments
	maxPictures = 20 << 20 // bytes of its images
)

// size is what an answer has so far.
type size struct{ calls, written, pictures int }

// add takes an event in, and reports whether the answer is within its bounds.
func (s *size) add(e llm.Event) bool {
	switch e := e.(type) {
	case llm.TextDelta:
		s.written += len(e.Text)
	case llm.ReasoningDelta:
		s.written += len(e.Text) + len(e.Opaque)
	case llm.ToolCallDelta:
		if e.Name != "" {
			s.calls++
		}
		s.written += len(e.ID) + len(e.Name) + len(e.Arguments) + len(e.Opaque)
	case llm.ImageOut:
		s.pictures += len(e.Data) + len(e.URL)
	}
	return s.excess() == ""
}

// excess says what the answer has too much of; "": nothing.
func (s *size) excess() string {
	switch {
	case s.calls > MaxCalls:
		return fmt.Sprintf("the answer has more than %d calls of tools", MaxCalls)
	case s.written > maxWritten:
		return fmt.Sprintf("the answer is longer than %d MiB", maxWritten>>20)
	case s.pictures > maxPictures:
		return fmt.Sprintf("the images of the answer are larger than %d MiB", maxPictures>>20)
	}
	return ""
}
