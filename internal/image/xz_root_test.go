//go:build root

package image

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

// xz compresses with the host's program.
func xz(t *testing.T, data []byte, flags ...string) []byte {
	t.Helper()
	cmd := exec.Command("xz", append([]string{"--compress", "--stdout"}, flags...)...)
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestImportOfXZ(t *testing.T) {
	s := openStore(t, t.TempDir())
	plain := importRoot(t, s, "plain", "1")
	data := tarOf(t, file{name: "./"}, file{name: "usr/bin/sh", body: "1", mode: 0o755}, file{name: "etc/passwd", body: "root"}, file{name: "usr/lib/deep/er/file", body: "x"})
	good := xz(t, data)
	var steps int
	img, err := s.Import(t.Context(), bytes.NewReader(good), int64(len(good)), "t.tar.xz", "one", func(Step) { steps++ })
	if err != nil || img.Digest != plain.Digest || steps == 0 {
		t.Errorf("Import = %+v, %v, with %d steps of progress; want the same image as from the plain archive", img, err, steps)
	}
	damaged := bytes.Clone(good)
	damaged[len(damaged)/2] ^= 0xff
	bomb := tarOf(t, file{name: "usr/bin/sh", body: strings.Repeat("\x00", 64<<20)})
	s.limits.bytes = 32 << 20
	tests := []struct {
		name string
		data []byte
		want errs.Kind
	}{
		{"cut off", good[:len(good)-20], errs.Invalid},
		{"damaged", damaged, errs.Invalid},
		{"a bomb", xz(t, bomb), errs.TooLarge},
		{"one that needs much memory", xz(t, data, "--lzma2=dict=512MiB"), errs.TooLarge},
	}
	for _, tt := range tests {
		if _, err := s.Import(t.Context(), bytes.NewReader(tt.data), int64(len(tt.data)), "t.tar.xz", "bad", nil); !errors.Is(err, tt.want) {
			t.Errorf("%s: Import = %v, want %v", tt.name, err, tt.want)
		}
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Errorf("List = %+v, %v, want the two good ones", list, err)
	}
}
