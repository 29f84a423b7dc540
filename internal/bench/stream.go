package bench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/client"
)

// ticks prints the time, and waits, n times.
const ticks = `i=0; while [ $i -lt %d ]; do date +%%s%%N; sleep 0.02; i=$((i+1)); done`

// stream measures how long a line takes from the command that writes it to
// the reader of the stream. Both read the same clock of this machine; the time
// that date needs to write after it looked is included.
func (b *bench) stream(ctx context.Context) error {
	s := b.report.section("stream", "From a write in the sandbox to the reader of the stream")
	n := b.count(100, 20)
	for _, isolation := range b.Isolations {
		id, remove, err := b.box(ctx, isolation)
		if err != nil {
			return err
		}
		v, err := b.streamOf(ctx, id, n)
		remove()
		if err != nil {
			return fmt.Errorf("%s: %w", isolation, err)
		}
		s.times(isolation+": line", v, 5)
	}
	return nil
}

func (b *bench) streamOf(ctx context.Context, id string, n int) (sample, error) {
	p, err := b.client.StartExec(ctx, id, client.Shell(fmt.Sprintf(ticks, n)))
	if err != nil {
		return nil, err
	}
	var v sample
	var line []byte
	for out, err := range p.Stream(ctx, 0) {
		if err != nil {
			return nil, err
		}
		now := time.Now().UnixNano()
		if out.Exit != nil {
			return v, out.Exit.Err()
		}
		line = append(line, out.Data...)
		for {
			i := bytes.IndexByte(line, '\n')
			if i < 0 {
				break
			}
			written, err := strconv.ParseInt(string(bytes.TrimSpace(line[:i])), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("not a time: %q", line[:i])
			}
			v.add(max(0, time.Duration(now-written)))
			line = line[i+1:]
		}
	}
	return v, nil
}
