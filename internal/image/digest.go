package image

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"

	"github.com/cubbyhq/cubby/internal/errs"
)

// summer compares what was read with a digest.
type summer struct {
	r    io.Reader
	h    hash.Hash // nil: there is nothing to compare with
	want string
}

func newSummer(r io.Reader, want string) *summer {
	s := &summer{r: r, want: want}
	if want != "" {
		s.h = sha256.New()
	}
	return s
}

func (s *summer) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if s.h != nil {
		s.h.Write(b[:n])
	}
	return n, err
}

func (s *summer) check() error {
	if s.h == nil || "sha256:"+hex.EncodeToString(s.h.Sum(nil)) == s.want {
		return nil
	}
	return errs.E(errs.Invalid, "a layer does not match its digest").
		Hint("the archive or the registry is damaged; fetch the image again")
}
