package core

import (
	"context"
	"io"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/tenancy"
)

// Each archive reads or writes a whole tree for as long as its client takes.
var archiveBound = tenancy.Bound{All: 128, Tenant: 32, Reserved: 16}

// What goes to the archive storage or comes from there is held in pieces of
// megabytes and compressed.
var storingBound = tenancy.Bound{All: 5, Tenant: 2, Reserved: 2}

// archiving counts the archives that are being made and unpacked, and has their
// conversions take turns on a half of the host's CPUs: compressing is the one
// work of the daemon that takes as much as it gets.
type archiving struct {
	places *tenancy.Places
	turns  chan struct{}
	// storing has the sandboxes that are archived and restored take turns.
	storing *tenancy.Turns
}

func newArchiving(cpus int) *archiving {
	return &archiving{
		places: tenancy.NewPlaces("archives that are being read or unpacked", archiveBound), turns: make(chan struct{}, max(1, cpus/2)),
		storing: tenancy.NewTurns(storingBound),
	}
}

// within makes a conversion wait for its turn wherever it works, and lets others
// have it while it waits for its source or its reader.
func (a *archiving) within(convert conversionFunc) conversionFunc {
	return func(w io.Writer, from io.Reader) error {
		a.turns <- struct{}{} // whoever has one works and gives it back
		defer func() { <-a.turns }()
		return convert(pausedWriter{w, a}, pausedReader{from, a})
	}
}

// conversionFunc writes a tar in another format.
type conversionFunc func(w io.Writer, from io.Reader) error

type pausedReader struct {
	io.Reader
	a *archiving
}

func (r pausedReader) Read(p []byte) (int, error) {
	<-r.a.turns
	defer func() { r.a.turns <- struct{}{} }()
	return r.Reader.Read(p)
}

type pausedWriter struct {
	io.Writer
	a *archiving
}

func (w pausedWriter) Write(p []byte) (int, error) {
	<-w.a.turns
	defer func() { w.a.turns <- struct{}{} }()
	return w.Writer.Write(p)
}

// open opens an archive in a place of the caller's.
func (a *archiving) open(ctx context.Context, open func() (io.ReadCloser, error)) (io.ReadCloser, error) {
	leave, err := a.places.Enter(auth.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	from, err := open()
	if err != nil {
		leave()
		return nil, err
	}
	return &inUse{from, leave}, nil
}
