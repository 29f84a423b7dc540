package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/cubbyhq/cubby/internal/errs"
)

// xzMemory is what decompressing may take, in MiB; the highest preset of xz
// wants 65.
const xzMemory = "256"

// unxz decompresses with the host's program xz, which bounds the memory that an
// archive can ask for. It reads r in a goroutine of its own, which has ended
// when Close returns and r's present Read has.
func unxz(r io.Reader) (io.ReadCloser, error) {
	program, err := exec.LookPath("xz")
	if err != nil {
		return nil, errs.E(errs.Unsupported, "the archive is compressed with xz, and this host has no program for that").
			Hint("apt-get install xz-utils").Because(err)
	}
	x := &xzReader{cmd: exec.Command(program, "--decompress", "--stdout", "--threads=1", "--memlimit-decompress="+xzMemory+"MiB")}
	x.cmd.Stdin = r
	x.cmd.Stderr = &x.stderr
	if x.out, err = x.cmd.StdoutPipe(); err != nil {
		return nil, fmt.Errorf("read xz: %w", err)
	}
	if err := x.cmd.Start(); err != nil {
		return nil, fmt.Errorf("read xz: %w", err)
	}
	return x, nil
}

// xzReader is a running xz.
type xzReader struct {
	cmd    *exec.Cmd
	out    io.Reader
	stderr bytes.Buffer
	ended  bool
	err    error // how it ended
}

// Read says at the end of the output whether all of the archive was good.
func (x *xzReader) Read(b []byte) (int, error) {
	if x.ended {
		return 0, x.err
	}
	n, err := x.out.Read(b)
	if errors.Is(err, io.EOF) {
		if err = x.wait(); err == nil {
			err = io.EOF
		}
		x.err = err
	}
	return n, err
}

func (x *xzReader) wait() error {
	x.ended = true
	err := x.cmd.Wait()
	switch {
	case err == nil:
		return nil
	case bytes.Contains(x.stderr.Bytes(), []byte("emory usage limit")):
		return errs.E(errs.TooLarge, "the archive needs more than %s MiB of memory to be decompressed", xzMemory)
	}
	return errs.E(errs.Invalid, "the archive is damaged").Because(fmt.Errorf("%w: %s", err, bytes.TrimSpace(x.stderr.Bytes())))
}

// Close ends the program when its output was not read to the end.
func (x *xzReader) Close() error {
	if x.ended {
		return nil
	}
	_ = x.cmd.Process.Kill()
	_ = x.wait() // it was killed
	x.err = io.ErrClosedPipe
	return nil
}
