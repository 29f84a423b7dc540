package jupyter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Kernelspec is one kernel that an image brings, as its kernel.json says.
type Kernelspec struct {
	Name        string            `json:"-"` // of its directory
	Dir         string            `json:"-"` // absolute
	Argv        []string          `json:"argv"`
	DisplayName string            `json:"display_name"`
	Language    string            `json:"language"`
	Interrupt   string            `json:"interrupt_mode"` // "signal" (also "") or "message"
	Env         map[string]string `json:"env"`
}

// The directories that Jupyter looks for kernelspecs in, the user's first.
const (
	userKernels = ".local/share/jupyter/kernels" // below the home directory
	maxSpec     = 64 << 10                       // bytes of a kernel.json
)

var systemKernels = []string{
	"/usr/local/share/jupyter/kernels",
	"/usr/share/jupyter/kernels",
}

// isSpecName reports whether Jupyter takes a name for a kernel's specification:
// letters, digits, dots, hyphens and underscores, here of at most 100 bytes.
func isSpecName(name string) bool {
	return name != "" && len(name) <= 100 && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}

// Find returns the kernelspecs of a root filesystem, ordered by name; of two
// with one name the user's own counts. A damaged one is left out: it is the
// image's, or the user's, to mend.
func Find(root fs.FS, home string) []Kernelspec {
	found := map[string]Kernelspec{}
	for _, dir := range append([]string{path.Join(home, userKernels)}, systemKernels...) {
		entries, err := fs.ReadDir(root, strings.TrimPrefix(dir, "/"))
		if err != nil {
			continue
		}
		for _, e := range entries {
			name := strings.ToLower(e.Name())
			if _, known := found[name]; known || !isSpecName(name) {
				continue
			}
			if spec, err := read(root, path.Join(dir, e.Name())); err == nil {
				spec.Name = name
				found[name] = spec
			}
		}
	}
	all := make([]Kernelspec, 0, len(found))
	for _, spec := range found {
		all = append(all, spec)
	}
	slices.SortFunc(all, func(a, b Kernelspec) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func read(root fs.FS, dir string) (Kernelspec, error) {
	file := path.Join(dir, "kernel.json")
	at := strings.TrimPrefix(file, "/")
	info, err := fs.Stat(root, at)
	switch {
	case err != nil:
		return Kernelspec{}, err
	case !info.Mode().IsRegular() || info.Size() > maxSpec:
		return Kernelspec{}, fmt.Errorf("%s: not a kernel.json", file)
	}
	text, err := fs.ReadFile(root, at)
	if err != nil {
		return Kernelspec{}, err
	}
	spec := Kernelspec{Dir: dir}
	if err := json.Unmarshal(text, &spec); err != nil {
		return Kernelspec{}, fmt.Errorf("%s: %w", file, err)
	}
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return Kernelspec{}, errors.New(file + ": no argv")
	}
	return spec, nil
}

// Command is what starts the kernel with a connection file.
func (k Kernelspec) Command(connectionFile string) []string {
	fill := strings.NewReplacer("{connection_file}", connectionFile, "{resource_dir}", k.Dir)
	argv := make([]string, len(k.Argv))
	for i, a := range k.Argv {
		argv[i] = fill.Replace(a)
	}
	return argv
}

// InterruptByMessage reports whether the kernel wants an interrupt_request
// instead of SIGINT.
func (k Kernelspec) InterruptByMessage() bool { return k.Interrupt == "message" }
