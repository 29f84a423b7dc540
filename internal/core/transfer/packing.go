package transfer

import (
	"context"
	"io"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/tenancy"
)

// Each archive reads or writes a whole tree for as long as its client takes.
var archiveBound = tenancy.Bound{All: 128, Tenant: 32, Reserved: 16}

// packing counts the archives that are being made and unpacked, and has their
// conversions take turns on a half of the host's CPUs: compressing is the one
// work of the daemon that takes as much as it gets.
type packing struct {
	places *tenancy.Places
	turns  chan struct{}
}

func newPacking(cpus int) *packing {
	return &packing{
		places: tenancy.NewPlaces("archives that are being read or unpacked", archiveBound), turns: make(chan struct{}, max(1, cpus/2)),
	}
}

// within makes a conversion wait for its turn wherever it works, and lets others
// have it while it waits for its source or its reader.
func (p *packing) within(convert conversionFunc) conversionFunc {
	return func(w io.Writer, from io.Reader) error {
		p.turns <- struct{}{} // whoever has one works and gives it back
		defer func() { <-p.turns }()
		return convert(pausedWriter{w, p}, pausedReader{from, p})
	}
}

// conversionFunc writes a tar in another format.
type conversionFunc func(w io.Writer, from io.Reader) error

type pausedReader struct {
	io.Reader
	p *packing
}

func (r pausedReader) Read(p []byte) (int, error) {
	<-r.p.turns
	defer func() { r.p.turns <- struct{}{} }()
	return r.Reader.Read(p)
}

type pausedWriter struct {
	io.Writer
	p *packing
}

func (w pausedWriter) Write(p []byte) (int, error) {
	<-w.p.turns
	defer func() { w.p.turns <- struct{}{} }()
	return w.Writer.Write(p)
}

// open opens an archive in a place of the caller's.
func (p *packing) open(ctx context.Context, open func() (io.ReadCloser, error)) (io.ReadCloser, error) {
	leave, err := p.places.Enter(auth.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	from, err := open()
	if err != nil {
		leave()
		return nil, err
	}
	return InUse(from, leave), nil
}
