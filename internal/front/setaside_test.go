package front_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// texts returns all strings of a document, with what stands for long ones.
func texts(t *testing.T, d *front.Document) []string {
	t.Helper()
	var list []string
	if err := json.Unmarshal(d.JSON, &list); err != nil {
		t.Fatal(err)
	}
	for i, s := range list {
		r, n := d.Text(s)
		b, err := io.ReadAll(r)
		if err != nil || int64(len(b)) != n {
			t.Errorf("text %d has %d bytes of %d, %v", i, len(b), n, err)
		}
		list[i] = string(b)
	}
	return list
}

func TestSetAsideKeepsEveryText(t *testing.T) {
	dir := t.TempDir()
	spool := front.Spool{Dir: dir, Disk: front.NewBudget(64 << 20)}
	want := []string{"", "short \" and \\", strings.Repeat("x", 100<<10), strings.Repeat("\"\\\n\t\x01\u2028é😀", 20<<10), "end", strings.Repeat("\\", 64<<10)}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	d, err := spool.SetAside(t.Context(), strings.NewReader(string(text)), 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for i, got := range texts(t, d) {
		if got != want[i] {
			t.Errorf("text %d is not what was sent: %.40q", i, got)
		}
	}
	if len(d.JSON) > 1000 {
		t.Errorf("%d bytes are held", len(d.JSON))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the directory holds %v, %v", left, err)
	}
}

// FuzzSetAside: what is decoded is what encoding/json would decode.
func FuzzSetAside(f *testing.F) {
	long := strings.Repeat("y", 33<<10)
	for _, s := range []string{`["a"]`, `["` + long + `"]`, `["` + long + `\ud83d\ude00\ud83d"]`, `["` + long + `\ude00\u00e9\ud83d\ud83d\ude00"]`, `["` + long, `[[[`, `["` + long + `\x"]`} {
		f.Add([]byte(s))
	}
	spool := front.Spool{Dir: f.TempDir(), Disk: front.NewBudget(1 << 30)}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want []string
		if json.Unmarshal(text, &want) != nil {
			return
		}
		d, err := spool.SetAside(t.Context(), strings.NewReader(string(text)), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for i, got := range texts(t, d) {
			// What is not UTF-8 is kept as it came.
			if strings.ToValidUTF8(got, "\uFFFD") != want[i] && !strings.Contains(want[i], "\uFFFD") {
				t.Errorf("text %d is %q, want %q", i, got, want[i])
			}
		}
	})
}

func TestSetAsideIsBounded(t *testing.T) {
	long := `"` + strings.Repeat("x", 40<<10) + `"`
	for _, tt := range []struct {
		name, text string
		want       error
	}{
		{"over the limit", `["` + strings.Repeat(`x","`, 1<<20) + `"]`, errs.TooLarge},
		{"over the limit without a text", strings.Repeat(" ", 9<<20), errs.TooLarge},
		{"many short texts", "[" + strings.Repeat(`"x",`, 1<<19) + `"x"]`, errs.TooLarge},
		{"deep", strings.Repeat("[", 1000), errs.Invalid},
		{"ends early", long[:len(long)-1], errs.Invalid},
		{"a wrong escape", long[:len(long)-1] + `\q"`, errs.Invalid},
		{"a wrong character", long[:len(long)-1] + `\uzzzz"`, errs.Invalid},
		{"more than half of the spool", `["` + strings.Repeat("x", 2900<<10) + `"]`, errs.TooLarge},
	} {
		spool := front.Spool{Dir: t.TempDir(), Disk: front.NewBudget(5 << 20)}
		if _, err := spool.SetAside(t.Context(), strings.NewReader(tt.text), 3<<20); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		// What was charged is given back.
		if d, err := spool.SetAside(t.Context(), strings.NewReader(long), 3<<20); err != nil {
			t.Errorf("after %s: %v", tt.name, err)
		} else {
			d.Close()
		}
	}
}

// TestHalfOfTheSpoolHasRoomForOneRequest: the largest body of a door is half of
// the smallest spool-space.
func TestHalfOfTheSpoolHasRoomForOneRequest(t *testing.T) {
	spool := front.Spool{Dir: t.TempDir(), Disk: front.NewBudget(8 << 20)}
	whole := strings.NewReader(`["` + strings.Repeat("x", 4<<20) + `"]`)
	d, err := spool.SetAside(t.Context(), whole, 5<<20)
	if err != nil {
		t.Fatalf("files that take half of the spool: %v", err)
	}
	defer d.Close()
	long := strings.NewReader(`["` + strings.Repeat("x", 1<<20) + `"]`)
	if _, err := spool.SetAside(t.Context(), long, 5<<20); !errors.Is(err, errs.Unready) {
		t.Errorf("more beside them: %v, want unready", err)
	}
}
