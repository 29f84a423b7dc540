// Package kernels keeps the kernels of a sandbox: interpreters that hold their
// state from one cell to the next. It finds what the image can start, starts a
// kernel when there is something to do, runs its cells one after another, passes
// on what they show, answers questions about code, and says of every cell how it
// ended, also when its kernel did.
//
// The processes are package proc's. It knows no connection and no request, and
// trusts nothing that a kernel says: all of it is bounded, and a kernel that
// does not answer or does not end is killed.
package kernels
