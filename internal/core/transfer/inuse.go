package transfer

import (
	"io"
	"sync"
)

// InUse returns a stream that calls done when it is closed, however often that
// is. It keeps the stream's own WriteTo, which saves a copy.
func InUse(r io.ReadCloser, done func()) io.ReadCloser { return &inUse{r, sync.OnceFunc(done)} }

type inUse struct {
	io.ReadCloser
	done func()
}

func (u *inUse) WriteTo(w io.Writer) (int64, error) {
	if wt, ok := u.ReadCloser.(io.WriterTo); ok {
		return wt.WriteTo(w)
	}
	return io.Copy(w, struct{ io.Reader }{u.ReadCloser})
}

func (u *inUse) Close() error {
	defer u.done()
	return u.ReadCloser.Close()
}
