package pack

import (
	"context"
	"errors"
	"io"
)

// Stream is what is in a local directory as a tar that is packed while it is read.
// Packed ends it, also before its end, and says what went wrong.
func Stream(ctx context.Context, local string) (archive io.Reader, packed func() error) {
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Dir(ctx, pw, local)
		done <- err
		_ = pw.CloseWithError(err) // never fails
	}()
	return pr, func() error {
		_ = pr.CloseWithError(io.ErrClosedPipe) // ends the packing when the reader gave up early
		if err := <-done; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			return err
		}
		return nil
	}
}
