package live

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/driver"
)

func TestOOMMessage(t *testing.T) {
	k := driver.OOMKill{Process: "python3", PID: 4711, Bytes: 250 << 20}
	if got, want := oomMessage(k, 256<<20), "out of memory: the kernel killed python3, which used 250 MiB; the sandbox's limit is 256 MiB"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	k.Bytes, k.Files = 2<<20, 120<<20
	if got, want := oomMessage(k, 256<<20), "out of memory: the kernel killed python3, which used 2 MiB; the sandbox's limit is 256 MiB"+
		", and 120 MiB of it belong to no process: they are files in memory, as in /dev/shm"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	k = driver.OOMKill{Process: "python3", PID: 4711, Locks: 20000}
	if got, want := oomMessage(k, 256<<20), "too many file locks: the sandbox held 20000 or more, which take memory of the host's kernel, so python3 was killed"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
