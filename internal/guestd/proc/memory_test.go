package proc

import (
	"strings"
	"testing"
)

func TestOOMTextTellsOfMemoryThatIsNobodys(t *testing.T) {
	const mib = 1 << 20
	whole := oomText("python3", 7, 200*mib, 20*mib, 256*mib)
	if want := "out of memory: python3 (pid 7) was killed while it used 200 MiB; the sandbox's limit is 256 MiB"; whole != want {
		t.Errorf("%s, want %s", whole, want)
	}
	if text := oomText("sh", 7, 2*mib, 250*mib, 256*mib); !strings.Contains(text, "250 MiB of it belong to no process") {
		t.Error(text)
	}
}
