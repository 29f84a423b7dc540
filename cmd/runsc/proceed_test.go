package main

import (
	"strings"
	"testing"
)

func TestReadStacks(t *testing.T) {
	task := func(head, where, number string) string {
		return "goroutine 7 [" + head + "]:\ngvisor.dev/gvisor/pkg/sentry/kernel.(*Task)." + where + "(0xc0)\n\t/t.go:1 +0x1\n" +
			"gvisor.dev/gvisor/pkg/sentry/kernel.(*Task).run(0xc0004, " + number + ")\n\t/t.go:2 +0x2"
	}
	call := func(name string) string {
		return "goroutine 9 [IO wait]:\ngvisor.dev/gvisor/runsc/boot.(*containerManager)." + name + "(0xc0, 0x1, 0x2)\n\t/t.go:1 +0x1"
	}
	const other = "goroutine 1 [sync.Cond.Wait]:\ngvisor.dev/gvisor/pkg/sentry/kernel.(*Kernel).WaitExited(0xc0)\n\t/x.go:1 +0x1"
	stopped, runs := task("sync.Cond.Wait, 2 minutes", "doStop", "0x1"), task("select", "block", "0x1")
	tests := []struct {
		name   string
		stacks []string
		want   kernelState
	}{
		{"no task", []string{other}, kernelState{}},
		{"it runs", []string{other, runs}, kernelState{}},
		{"paused", []string{other, stopped, task("sync.Cond.Wait", "doStop", "0x2")}, kernelState{stopped: true}},
		{"a process that was stopped", []string{runs, task("sync.Cond.Wait", "doStop", "0x12")}, kernelState{}},
		{"a resume has reached it", []string{task("runnable", "doStop", "0x1")}, kernelState{}},
		{"a resume has reached it, and it takes its lock", []string{task("sync.Mutex.Lock", "doStop", "0x1")}, kernelState{}},
		{"a pause begins", []string{runs, call("Pause")}, kernelState{pauses: true}},
		{"a pause waits for a task", []string{stopped, task("select", "block", "0x2"), call("Pause")}, kernelState{pauses: true, stopped: true}},
		{"the state is written", []string{call("Checkpoint"), stopped}, kernelState{saves: true, stopped: true}},
		{"the files are written", []string{stopped, call("FSSave")}, kernelState{saves: true, stopped: true}},
	}
	for _, tt := range tests {
		if got := readStacks(strings.Join(tt.stacks, "\n\n")); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
