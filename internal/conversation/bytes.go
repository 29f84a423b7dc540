package conversation

import "encoding/json"

// Bytes is about how many a thread has in memory.
func (t Thread) Bytes() int64 { return int64(len(t.Config)+len(t.Error)) + bytesOf(t.Metadata) }

// Bytes is about how many a checkpoint has in memory, without its messages.
func (c Checkpoint) Bytes() int64 {
	n := bytesOf(c.Metadata)
	for _, t := range c.Tasks {
		for _, i := range t.Interrupts {
			n += int64(len(i.Value))
		}
	}
	return n
}

// Bytes is about how many a run has in memory.
func (r Run) Bytes() int64 {
	n := int64(len(r.Error)+len(r.Request.Input)+len(r.Request.Context)) + bytesOf(r.Metadata) + bytesOf(r.Request.Configurable)
	if c := r.Request.Command; c != nil {
		n += int64(len(c.Resume) + len(c.Goto) + len(c.Update))
	}
	return n
}

func bytesOf(object map[string]json.RawMessage) (n int64) {
	for name, value := range object {
		n += int64(len(name) + len(value))
	}
	return n
}
