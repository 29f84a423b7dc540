package proc

import "context"

// KillDescendants ends all that descends from a process, but not the process
// itself, and returns when nothing of it is left or ctx ends. What left the tree
// by the end of its parent is found where the process is a subreaper, which then
// has to reap it.
func KillDescendants(ctx context.Context, pid int) error {
	members := func() []int {
		table, _ := processTable()
		return keys(descendants(table, pid))
	}
	return killUntil(ctx, func() bool { return len(members()) > 0 }, func() { stopAndKill(ctx, members) })
}
