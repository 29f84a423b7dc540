package main

import (
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	_ "gvisor.dev/gvisor/pkg/sentry/syscalls/linux" // registers the tables
)

// wrapper makes a system call of one.
type wrapper func(do kernel.SyscallFn) kernel.SyscallFn

// wrapCalls replaces calls of gVisor's kernel, by their names in its tables. Call it
// before the kernel runs.
func wrapCalls(calls map[string]wrapper) error {
	for _, table := range kernel.SyscallTables() {
		for name, wrap := range calls {
			number, err := table.LookupNo(name)
			if err != nil {
				return err
			}
			call := table.Table[number]
			call.Fn = wrap(call.Fn)
			table.Table[number] = call
		}
		table.Init()
	}
	return nil
}
