// Package proc runs the commands of a sandbox: it resolves what to execute and
// as whom, starts it, keeps its output until the host acknowledges it, holds
// everything that descends from it together as one process tree, ends that
// tree, and says honestly how the command ended. As PID 1 it reaps orphans,
// shields the agent from commands and, where the kernel is the sandbox's own,
// keeps the memory budget.
//
// It knows nothing of connections, files or kernels, decides no policy, and
// never waits without an end for something that a command controls.
package proc
