package front

import "strings"

// RestoreIncomplete is the header of an answer whose request made a sandbox run, or
// waited for that, and found its memory lost: it says what is lost and what is not.
// Over gRPC it is metadata.
const RestoreIncomplete = "Cubby-Restore-Incomplete"

// maxLossText bounds the header, which some proxies do.
const maxLossText = 1 << 10

// LossText is what is lost as one line of ASCII, which headers and fields have.
func LossText(reason string) string {
	text := strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r > '~':
			return '?'
		}
		return r
	}, reason)
	return text[:min(len(text), maxLossText)]
}

// tellLosses sets the header before it is sent.
func (w *response) tellLosses() {
	if text := LossText(w.losses.Reason()); text != "" {
		w.Header().Set(RestoreIncomplete, text)
	}
}
