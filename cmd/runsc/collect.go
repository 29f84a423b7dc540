package main

import (
	"math"
	"os"
	"runtime/debug"
	"time"
)

// While a sandbox begins, its processes make many objects of which hardly any is
// garbage, and collecting that took a fifth of the time until it answered.
const (
	beginTime = 2 * time.Second
	// beginHeap bounds what they take meanwhile: a state of many megabytes is read
	// with the collector at work.
	beginHeap = 128 << 20
)

// collectLater leaves garbage alone while a process begins. Most commands have
// ended by then; the others collect as ever afterwards.
func collectLater() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(beginHeap)
	time.AfterFunc(beginTime, func() {
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(math.MaxInt64)
		debug.FreeOSMemory()
	})
}
