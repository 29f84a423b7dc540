package store

import "github.com/cubbyhq/cubby/internal/sandbox"

// WatchEvents returns a channel that has a token whenever events of a sandbox
// may have been committed since the last token was taken, until stop is
// called. Who watches first and reads then misses none.
func (s *Store) WatchEvents(box sandbox.UID) (more <-chan struct{}, stop func()) {
	return s.notices.Watch(box)
}

// EventNotices is how many notices of a sandbox's events have been given since somebody
// watches them. While it is the same, there are no more events.
func (s *Store) EventNotices(box sandbox.UID) uint64 { return s.notices.Given(box) }

// WatchRuns is [Store.WatchEvents] of the runs of a thread, and of its end.
func (s *Store) WatchRuns(thread sandbox.UID) (more <-chan struct{}, stop func()) {
	return s.notices.Watch(thread)
}
