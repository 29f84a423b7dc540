package journal

import (
	"fmt"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 32 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			j := openDir(b, b.TempDir(), Limits{PerExec: 1 << 30, PerSandbox: 2 << 30})
			l := create(b, j, sandbox.NewUID(), 1)
			o := sandbox.Output{Stream: sandbox.Stdout, Time: when, Data: make([]byte, size)}
			b.SetBytes(int64(size))
			for b.Loop() {
				if err := l.Append(o); err != nil {
					b.Fatal(err)
				}
				o.Offset += int64(size)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{100, 32 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			j := openDir(b, b.TempDir(), Limits{})
			box := sandbox.NewUID()
			l := create(b, j, box, 1)
			const total = 16 << 20
			data := make([]byte, size)
			for l.Size() < total {
				write(b, l, sandbox.Stdout, string(data))
			}
			if err := l.Finish(exited(0)); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(total)
			for b.Loop() {
				for _, err := range j.Read(b.Context(), box, 1, 0, false) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkShortExec is what one `true` costs, with and without files that
// are ready.
func BenchmarkShortExec(b *testing.B) {
	for _, spares := range []bool{false, true} {
		b.Run(fmt.Sprint("spares=", spares), func(b *testing.B) {
			j := openDir(b, b.TempDir(), Limits{PerExec: 1 << 20, PerSandbox: 64 << 20})
			box := sandbox.NewUID()
			seq := int64(0)
			for b.Loop() {
				if spares && len(j.spares.ready) == 0 {
					b.StopTimer()
					if err := j.spares.fill(b.Context()); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				seq++
				l := create(b, j, box, seq)
				write(b, l, sandbox.Stdout, "hello\n")
				if err := l.Finish(exited(0)); err != nil {
					b.Fatal(err)
				}
				if _, err := j.Collect(b.Context(), box, seq, Caps{Stdout: -1, Stderr: -1, Rich: -1}); err != nil {
					b.Fatal(err)
				}
			}
			j.spares.end()
		})
	}
}
