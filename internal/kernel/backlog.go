package kernel

import "sync"

// maxBacklog bounds a Backlog, in bytes.
const maxBacklog = 256 << 10

// Backlog passes on what a kernel shows outside of the cell that made it: a
// thread, a timer or a program of the background may print when its cell has
// ended. It is shown by the cell that runs, or else by the next one. Of more
// than 256 KiB the beginning is kept and the rest counted.
type Backlog struct {
	mu   sync.Mutex
	show func(Output) // of the cell that runs; nil: none does
	held []Output
	size int
	cut  int64
}

// Begin shows what is held, and has show take what comes until End.
func (b *Backlog) Begin(show func(Output)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.held {
		show(o)
	}
	if b.cut > 0 {
		show(Output{Stream: &Stream{Name: "stdout"}, Cut: b.cut})
	}
	b.held, b.size, b.cut = nil, 0, 0
	b.show = show
}

// End returns when nothing is being shown any more.
func (b *Backlog) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.show = nil
}

// Add gives an output to the cell that runs. While none does, text and displays
// are held, and every other output, which belongs to its own cell, is dropped.
func (b *Backlog) Add(o Output) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.show != nil {
		b.show(o)
		return
	}
	var size int
	switch {
	case o.Stream != nil:
		size = len(o.Stream.Text)
	case o.Display != nil:
		size = len(o.Display.Metadata)
		for name, value := range o.Display.Data {
			size += len(name) + len(value)
		}
	default:
		return
	}
	if b.cut > 0 || b.size+size > maxBacklog {
		b.cut += int64(size) + o.Cut
		return
	}
	b.held = append(b.held, o)
	b.size += size + backlogEntry
}

// backlogEntry is what an entry costs beside its text: many small ones are
// bounded too.
const backlogEntry = 64
