package sandbox

// fixedBytes is what a record takes beside its texts, about.
const fixedBytes = 512

// TextBytes is what a text takes as JSON: control characters have six times
// their length.
func TextBytes[T string | []byte](text T) int64 {
	n := int64(len(text))
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\t' || c == '\r':
			n++
		case c < ' ':
			n += 5
		}
	}
	return n
}

// Bytes is what an exec takes as JSON, about.
func (e Exec) Bytes() int64 {
	n := fixedBytes + int64(len(e.Spec.Detail)+len(e.Result)) + TextBytes(e.Spec.Shell) + TextBytes(e.Spec.Cwd)
	for _, arg := range e.Spec.Argv {
		n += TextBytes(arg) + 16
	}
	if e.Spec.Cell != nil {
		n += TextBytes(e.Spec.Cell.Code)
	}
	return n
}

// Bytes is what an event takes as JSON, about.
func (e Event) Bytes() int64 { return fixedBytes + int64(len(e.Payload)+len(e.Result)) }

// Bytes is what a spec takes as JSON, about.
func (s Spec) Bytes() int64 {
	n := int64(2 * fixedBytes)
	for _, pairs := range []map[string]string{s.Dependencies, s.Env, s.Labels, s.Metadata} {
		for k, v := range pairs {
			n += TextBytes(k) + TextBytes(v) + 16
		}
	}
	for _, hosts := range [][]string{s.Network.Allow, s.Network.Deny} {
		for _, h := range hosts {
			n += int64(len(h)) + 16
		}
	}
	for _, service := range s.Services {
		n += fixedBytes + TextBytes(service.Command) + TextBytes(service.Cwd) + TextBytes(service.Requires)
		for k, v := range service.Env {
			n += TextBytes(k) + TextBytes(v) + 16
		}
	}
	return n
}
