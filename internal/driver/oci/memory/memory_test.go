package memory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func sealed(t *testing.T) Memory {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("program"), 0o700); err != nil {
		t.Fatal(err)
	}
	m := Of(t.TempDir(), new(Programs))
	if err := m.Begin(program); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"checkpoint.img", "pages.img"} {
		if err := os.WriteFile(filepath.Join(m.HalfImage(), name), make([]byte, 10_000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, kept, err := m.Kept(); kept || err != nil {
		t.Fatalf("half a memory is kept = %v, %v", kept, err)
	}
	if err := m.Seal(Content{Secret: "secret", Note: []byte("note")}); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMemoryIsWholeOrNone(t *testing.T) {
	m := sealed(t)
	if size, kept, err := m.Kept(); !kept || err != nil || size < 20_000 {
		t.Errorf("Kept = %d, %v, %v; want what the files take", size, kept, err)
	}
	if c, err := m.Verify(); err != nil || c.Secret != "secret" || string(c.Note) != "note" {
		t.Errorf("Verify = %q, %v", c, err)
	}
	if err := m.Tidy(); err != nil {
		t.Fatal(err)
	}
	if program, err := os.ReadFile(m.Program()); err != nil || string(program) != "program" {
		t.Errorf("the program is %q, %v", program, err)
	}
	for range 2 {
		if err := m.Forget(); err != nil {
			t.Fatal(err)
		}
		if _, kept, err := m.Kept(); kept || err != nil {
			t.Errorf("after Forget it is kept = %v, %v", kept, err)
		}
		if _, err := m.Verify(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Verify of none = %v, want that there is none", err)
		}
	}
	if left, err := os.ReadDir(m.dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestOfTwoMemoriesThereIsTheLast(t *testing.T) {
	m := sealed(t)
	if err := m.Forget(); err != nil {
		t.Fatal(err)
	}
	// What a crash in the middle of the next one leaves.
	if err := m.Begin("/proc/self/exe"); err != nil {
		t.Fatal(err)
	}
	if err := m.Begin("/proc/self/exe"); err != nil {
		t.Errorf("Begin over half a memory: %v", err)
	}
	if err := m.Tidy(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(m.dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestDamageIsFound(t *testing.T) {
	for name, damage := range map[string]func(m Memory) error{
		"manifest": func(m Memory) error { return os.WriteFile(filepath.Join(m.path(), manifestName), []byte("{}"), 0) },
		"manifest of another version": func(m Memory) error {
			return os.WriteFile(filepath.Join(m.path(), manifestName), []byte("cfe68a13\n{\"v\":3}"), 0)
		},
		"a missing note":    func(m Memory) error { return os.Remove(filepath.Join(m.path(), noteName)) },
		"truncated image":   func(m Memory) error { return os.Truncate(filepath.Join(m.Image(), "pages.img"), 9_999) },
		"lengthened image":  func(m Memory) error { return os.Truncate(filepath.Join(m.Image(), "pages.img"), 10_001) },
		"a missing image":   func(m Memory) error { return os.Remove(filepath.Join(m.Image(), "checkpoint.img")) },
		"a missing program": func(m Memory) error { return os.Remove(m.Program()) },
		"another byte": func(m Memory) error {
			other := make([]byte, 10_000)
			other[5_000] = 1
			return os.WriteFile(filepath.Join(m.Image(), "checkpoint.img"), other, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := sealed(t)
			if err := damage(m); err != nil {
				t.Fatal(err)
			}
			if c, err := m.Verify(); err == nil {
				t.Errorf("Verify = %q, want an error", c)
			}
		})
	}
}
