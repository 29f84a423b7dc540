// Package journal keeps the output of execs.
package journal

import (
	"context"
	"iter"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

var errStub = errs.E(errs.Internal, "not built yet")

// Limits bound the bytes on disk; 0 means no limit.
type Limits struct{ PerExec, PerSandbox int64 }

type Journals struct{}

func Open(dir string, limits Limits) (*Journals, error) { return nil, errStub }
func (j *Journals) Close() error                        { return errStub }

// Create makes the log of an exec, or reopens it to append.
func (j *Journals) Create(box sandbox.UID, seq int64) (*Log, error) { return nil, errStub }

type Log struct{}

func (l *Log) Append(o sandbox.Output) error  { return errStub }
func (l *Log) Size() int64                    { return 0 }
func (l *Log) Cut() (stdout, stderr int64)    { return 0, 0 }
func (l *Log) Exit() *sandbox.Exit            { return nil } // not nil: finished
func (l *Log) Finish(exit sandbox.Exit) error { return errStub }
func (l *Log) Close() error                   { return errStub }

// Entry is a piece of output or, as the last one, the Exit.
type Entry struct {
	Output sandbox.Output // when Exit is nil; Data belongs to the receiver
	Exit   *sandbox.Exit
}

func (j *Journals) Read(ctx context.Context, box sandbox.UID, seq, after int64, follow bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { yield(Entry{}, errStub) }
}

// Caps bound what Collect returns; 0 returns nothing of a stream, <0 all.
type Caps struct{ Stdout, Stderr int64 }

// Collected is a log in memory. The cut counts include what the log itself
// did not keep.
type Collected struct {
	Stdout, Stderr       []byte
	StdoutCut, StderrCut int64
	Exit                 *sandbox.Exit // nil: not finished
}

func (j *Journals) Collect(ctx context.Context, box sandbox.UID, seq int64, caps Caps) (Collected, error) {
	return Collected{}, errStub
}

func (j *Journals) Remove(box sandbox.UID) error         { return errStub }
func (j *Journals) Boxes() ([]sandbox.UID, error)        { return nil, errStub }
func (j *Journals) Usage(box sandbox.UID) (int64, error) { return 0, errStub }
