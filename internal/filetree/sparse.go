package filetree

import (
	"io"
	"os"
)

// sparseWriter leaves holes where whole blocks are zero, so that sparse files
// stay sparse and a small archive does not write much.
type sparseWriter struct {
	f    *os.File
	hole bool // the file ends in a hole that is not there yet
	size int64
}

const sparseBlock = 64 << 10

func (w *sparseWriter) Write(b []byte) (n int, err error) {
	for n < len(b) {
		part := b[n:min(n+sparseBlock, len(b))]
		if len(part) == sparseBlock && allZero(part) {
			if _, err := w.f.Seek(int64(len(part)), io.SeekCurrent); err != nil {
				return n, err
			}
			w.hole = true
			n += len(part)
			w.size += int64(len(part))
			continue
		}
		// Everything up to the next hole in one write.
		end := n + len(part)
		for end < len(b) {
			next := b[end:min(end+sparseBlock, len(b))]
			if len(next) == sparseBlock && allZero(next) {
				break
			}
			end += len(next)
		}
		m, err := w.f.Write(b[n:end])
		n += m
		w.size += int64(m)
		w.hole = false
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (w *sparseWriter) end() error {
	if w.hole {
		return w.f.Truncate(w.size)
	}
	return nil
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7] != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
