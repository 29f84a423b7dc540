package memory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// half is a memory that is written and not sealed.
func half(t *testing.T) Memory {
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
	return m
}

func sealed(t *testing.T) Memory {
	t.Helper()
	m := half(t)
	if err := m.Seal(Content{Secret: "secret", Note: []byte("note")}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestSealSaysWhyAFileIsGone: a runtime whose disk is full removes what it began, and says
// later why it did.
func TestSealSaysWhyAFileIsGone(t *testing.T) {
	for range 20 {
		m := half(t)
		err := m.Seal(Content{}, func() error {
			err := os.RemoveAll(m.HalfImage())
			time.Sleep(10 * time.Millisecond)
			return errors.Join(syscall.ENOSPC, err)
		})
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("Seal = %v, want that the disk is full", err)
		}
	}
}

func TestMemoryIsWholeOrNone(t *testing.T) {
	m := sealed(t)
	if size, kept, err := m.Kept(); !kept || err != nil || size < 20_000 {
		t.Errorf("Kept = %d, %v, %v; want what the files take", size, kept, err)
	}
	if c, err := m.Open(); err != nil || c.Secret != "secret" || string(c.Note) != "note" {
		t.Errorf("Open = %q, %v", c, err)
	}
	if err := m.Verify(); err != nil {
		t.Errorf("Verify: %v", err)
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
		if _, err := m.Open(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open of none = %v, want that there is none", err)
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
		"a note that is a directory": func(m Memory) error {
			path := filepath.Join(m.path(), noteName)
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
		"an image that is a directory": func(m Memory) error {
			path := filepath.Join(m.Image(), "pages.img")
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
		"an image in no directory": func(m Memory) error {
			return errors.Join(os.RemoveAll(m.Image()), os.WriteFile(m.Image(), nil, 0o600))
		},
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
			c, err := m.Open()
			if err == nil {
				err = m.Verify()
			}
			if !errors.Is(err, errs.NotFound) {
				t.Errorf("Open = %q, and then %v; want that it is damaged", c, err)
			}
		})
	}
}

// TestUnreadableIsNotDamaged: a file of a memory that cannot be read now may be whole.
func TestUnreadableIsNotDamaged(t *testing.T) {
	refused := func(errno syscall.Errno) func(path string) (*os.File, error) {
		return func(path string) (*os.File, error) { return nil, &fs.PathError{Op: "open", Path: path, Err: errno} }
	}
	for what, unreadable := range map[string]func(path string) (*os.File, error){
		"too many open files":         refused(syscall.EMFILE),
		"too many open files of all":  refused(syscall.ENFILE),
		"no memory":                   refused(syscall.ENOMEM),
		"a sector that does not open": refused(syscall.EIO),
		// Whose reads fail.
		"a file that does not read": func(path string) (*os.File, error) { return os.OpenFile(path, os.O_WRONLY, 0) },
	} {
		for _, name := range []string{manifestName, noteName, programName, "checkpoint.img", "pages.img"} {
			t.Run(what+", "+name, func(t *testing.T) {
				m := sealed(t)
				m.programs = new(Programs) // of a daemon that has read none yet
				m.open = func(path string) (*os.File, error) {
					if filepath.Base(path) == name {
						return unreadable(path)
					}
					return os.Open(path)
				}
				_, err := m.Open()
				if inside := filepath.Ext(name) == ".img"; inside && err == nil {
					err = m.Verify()
				}
				if !errors.Is(err, errs.Unavailable) || errors.Is(err, errs.NotFound) {
					t.Errorf("it says %v, want that it is unavailable", err)
				}
				m.open = os.Open
				if _, err := m.Open(); err != nil {
					t.Errorf("Open of what can be read again = %v", err)
				}
				if err := m.Verify(); err != nil {
					t.Errorf("Verify of what can be read again = %v", err)
				}
			})
		}
	}
}
