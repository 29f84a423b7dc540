package image

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/cubbyhq/cubby/internal/errs"
)

// decompress looks at the first bytes of r and returns what is inside. Text
// that claims a compression is not believed: media types are often wrong.
func decompress(r io.Reader) (io.ReadCloser, error) {
	const window = 128 << 20 // the most that zstd may keep in memory
	br := bufio.NewReaderSize(r, 256<<10)
	magic, err := br.Peek(6)
	if err != nil && len(magic) == 0 {
		return nil, errs.E(errs.Invalid, "the archive is empty").Because(err)
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, errs.E(errs.Invalid, "the archive is damaged").Because(err)
		}
		return z, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		// One at a time reads in the caller's goroutine, which also reports
		// the progress.
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderMaxMemory(2*window))
		if err != nil {
			return nil, fmt.Errorf("read zstd: %w", err)
		}
		return z.IOReadCloser(), nil
	case bytes.HasPrefix(magic, []byte("BZh")):
		return io.NopCloser(bzip2.NewReader(br)), nil
	case bytes.Equal(magic, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return unxz(br)
	}
	return io.NopCloser(br), nil
}
