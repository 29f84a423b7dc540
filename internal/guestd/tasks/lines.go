package tasks

import (
	"bufio"
	"errors"
	"io"
)

// maxLine bounds a line of an agent's output; a longer one is passed over.
const maxLine = 8 << 20

// readLines calls each for every line, without its end, until the input ends or
// each returns false. The line is valid during the call only.
func readLines(from io.Reader, each func(line []byte) bool) {
	r := bufio.NewReaderSize(from, 64<<10)
	var long []byte
	dropped := false
	for {
		part, err := r.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		switch {
		case dropped:
		case len(long)+len(part) > maxLine:
			long, dropped = nil, true
		case full || len(long) > 0:
			long = append(long, part...)
		}
		if full {
			continue
		}
		line := part
		if len(long) > 0 {
			line = long
		}
		if !dropped && len(line) > 0 {
			if line[len(line)-1] == '\n' {
				line = line[:len(line)-1]
			}
			if !each(line) {
				return
			}
		}
		long, dropped = nil, false
		if err != nil {
			return
		}
	}
}
