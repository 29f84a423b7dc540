package live

import "sync"

// maxLanguages bounds the kernels whose language is remembered.
const maxLanguages = 256

// languages are those of the kernels that a run's agent had, by the kernel's
// name.
type languages struct {
	mu    sync.Mutex
	names map[string]string // guarded by mu
}

// Language is that of a kernel, as far as it is remembered; else "".
func (r *Run) Language(kernel string) string {
	l := &r.languages
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names[kernel]
}

// SetLanguage remembers the language of a kernel for as long as the sandbox runs;
// "" forgets it.
func (r *Run) SetLanguage(kernel, language string) {
	l := &r.languages
	l.mu.Lock()
	defer l.mu.Unlock()
	if language == "" {
		delete(l.names, kernel)
		return
	}
	if l.names == nil || len(l.names) >= maxLanguages {
		l.names = make(map[string]string)
	}
	l.names[kernel] = language
}
