package rest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A listing is held until it is complete, so that what goes wrong is a status.
const (
	maxListing      = 100_000
	maxListingBytes = 32 << 20
	// listingStep is the piece in which one is held and charged.
	listingStep = 256 << 10
)

// listing is a JSON array in pieces, of which none is ever copied.
type listing struct {
	d       *door
	pieces  [][]byte
	count   int
	bytes   int
	charges []func()
}

func (l *listing) add(ctx context.Context, entry any) error {
	text, err := front.PlainJSON(entry)
	if err != nil {
		return err
	}
	text = text[:len(text)-1] // the line break
	l.bytes += len(text) + 1
	if l.count++; l.count > maxListing || l.bytes > maxListingBytes {
		return errs.E(errs.TooLarge, "the listing is over %d entries or %d MiB", maxListing, maxListingBytes>>20).
			Hint("list a smaller directory, or one level at a time")
	}
	last := len(l.pieces) - 1
	if last < 0 || len(l.pieces[last])+len(text)+1 > cap(l.pieces[last]) {
		size := max(listingStep, len(text)+1)
		if last < 0 {
			size = max(listingStep/16, len(text)+1) // most are small
		}
		if l.d.Spool.Memory != nil {
			release, err := l.d.Spool.Memory.Hold(ctx, int64(size))
			if err != nil {
				return err
			}
			l.charges = append(l.charges, release)
		}
		l.pieces = append(l.pieces, make([]byte, 0, size))
		last++
	}
	if l.count > 1 {
		l.pieces[last] = append(l.pieces[last], ',')
	}
	l.pieces[last] = append(l.pieces[last], text...)
	return nil
}

func (l *listing) release() {
	for _, release := range l.charges {
		release()
	}
}

// write answers {"path":…,"entries":[…]}.
func (l *listing) write(w http.ResponseWriter, dir string) {
	head, err := json.Marshal(dir)
	if err != nil {
		panic(err) // a string
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for _, piece := range l.parts(head) {
		for len(piece) > 0 {
			n, err := w.Write(piece[:min(len(piece), httpapi.CopyBuffer)])
			if err != nil {
				return // the client went away
			}
			piece = piece[n:]
		}
	}
}

func (l *listing) parts(head []byte) [][]byte {
	all := append([][]byte{[]byte(`{"path":`), head, []byte(`,"entries":[`)}, l.pieces...)
	return append(all, []byte("]}\n"))
}

func (d *door) listFiles(ctx context.Context, in *struct {
	exchange
	PathInput
	Recursive bool `query:"recursive" doc:"Everything below, not only the directory itself."`
},
) (*streamed, error) {
	dir := d.within(ctx, in.ID, in.Path)
	if dir == "" {
		dir = sandbox.WorkspaceDir
	}
	l := &listing{d: d}
	for f, err := range d.Core.Files().List(ctx, in.ID, dir, in.Recursive) {
		if err == nil {
			err = l.add(ctx, fileJSON(f))
		}
		if err != nil {
			l.release()
			return nil, err
		}
	}
	return stream(func() {
		defer l.release()
		l.write(in.w, absolute(dir))
	}), nil
}
