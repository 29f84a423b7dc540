package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/cubbyhq/cubby/client"
)

const transferSize = 100 << 20

// transfer measures a file of 100 MiB in and out.
func (b *bench) transfer(ctx context.Context) error {
	s := b.report.section("transfer", "A file of 100 MiB")
	n := b.count(5, 1)
	for _, isolation := range b.Isolations {
		id, remove, err := b.box(ctx, isolation)
		if err != nil {
			return err
		}
		up, down, err := b.transferOf(ctx, id, n)
		remove()
		if err != nil {
			return fmt.Errorf("%s: %w", isolation, err)
		}
		s.value(isolation+": upload", "MB/s", median(up), n, 300, true)
		s.value(isolation+": download", "MB/s", median(down), n, 300, true)
	}
	return nil
}

func (b *bench) transferOf(ctx context.Context, id string, n int) (up, down []float64, err error) {
	files := b.client.Files(id)
	for range n {
		d, err := timed(func() error {
			_, err := files.Write(ctx, "bench.bin", io.LimitReader(newNoise(), transferSize), client.WriteOptions{Size: transferSize})
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		up = append(up, transferSize/1e6/d.Seconds())
		d, err = timed(func() error {
			r, err := files.Open(ctx, "bench.bin")
			if err != nil {
				return err
			}
			defer r.Close()
			got, err := io.Copy(io.Discard, r)
			if err == nil && got != transferSize {
				err = fmt.Errorf("%d bytes came back", got)
			}
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		down = append(down, transferSize/1e6/d.Seconds())
	}
	return up, down, nil
}

// noise repeats a random block: nothing on the way may squeeze it.
type noise struct {
	block []byte
	at    int
}

func newNoise() *noise {
	block := make([]byte, 1<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(block) // never fails
	return &noise{block: block}
}

func (n *noise) Read(p []byte) (int, error) {
	c := copy(p, n.block[n.at:])
	n.at = (n.at + c) % len(n.block)
	return c, nil
}
