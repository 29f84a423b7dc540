package live

// Queue is what a queue has.
type Queue struct {
	Running int64 // the seq of the exec that runs; 0: none
	Waiting int
}

// Busy reports whether anything runs or waits.
func (q Queue) Busy() bool { return q.Running != 0 || q.Waiting > 0 }

// Queue is what a session's queue or a [KernelQueue] has now.
func (r *Run) Queue(name string) Queue {
	qs := r.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.names[name]; q != nil {
		return Queue{Running: qs.runs(q), Waiting: q.waiting}
	}
	return Queue{}
}

// SessionQueues is what the queues of sessions have now, by the session's name.
func (r *Run) SessionQueues() map[string]Queue {
	qs := r.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	all := make(map[string]Queue)
	for name, q := range qs.names {
		if !q.ofKernel() {
			all[name] = Queue{Running: qs.runs(q), Waiting: q.waiting}
		}
	}
	return all
}
