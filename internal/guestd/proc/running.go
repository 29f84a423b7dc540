package proc

import (
	"maps"
	"os"
	"slices"
)

// Running is a process inside the sandbox.
type Running struct {
	PID  int
	Name string // as the process chose it; at most 15 bytes
}

// Programs are the processes of the sandbox that can be seen, without the agent,
// by their pids.
func Programs() []Running {
	table, _ := processTable()
	delete(table, os.Getpid())
	var all []Running
	for _, pid := range slices.Sorted(maps.Keys(table)) {
		if p := table[pid]; !p.zombie {
			all = append(all, Running{pid, p.name})
		}
	}
	return all
}
