// Package guestd is the program inside a sandbox. It dials the host over a
// UNIX socket and serves the guest protocol on the connections it dialled:
// commands and terminals (package proc), kernels (package kernels), files, port
// dials, and the sandbox's end of the egress path.
//
// As PID 1 (cmd/cubby-init) it is also the sandbox's init: it reaps orphans,
// bounds the number of processes and, where the kernel is the sandbox's own,
// keeps the memory budget. As a library it does the same for its own commands
// only.
//
// Hostile code runs beside it. guestd trusts the host that knows the boot
// secret and nothing else: everything that comes from inside is bounded, and
// nothing from inside is waited for without an end. It holds no policy: what
// may run, reach or be written is decided on the host.
package guestd
