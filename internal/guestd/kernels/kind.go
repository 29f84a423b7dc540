package kernels

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/kernel/jupyter"
)

// kernelKind is a kernel that can be started: one with a kernelspec, or
// cubby's own for Node.
type kernelKind struct {
	spec, language, display string
	jupyter                 *jupyter.Kernelspec // nil: the kernel for Node
}

const nodeKernel = "node"

// Kernels of cubby's images, for who asks for one that this image lacks.
var kernelImages = map[string]string{"python": "base", nodeKernel: "base", "r": "r"}

// canonicalLanguage is what a language is called here, whatever its users
// call it.
func canonicalLanguage(name string) string {
	switch name = strings.ToLower(name); name {
	case "python3", "py", "ipython":
		return "python"
	case "javascript", "js", "nodejs":
		return nodeKernel
	case "ir":
		return "r"
	case "sh", "shell":
		return "bash"
	}
	return name
}

// kernelKinds are the kernels that an account can start, by spec.
func (s *Set) kernelKinds(a proc.Account, env []string) []kernelKind {
	root := specFiles{root: s.cfg.MapPath("/"), rootOnly: a.UID == 0 && !s.cfg.OneUser}
	home, _ := proc.LookupEnv(env, "HOME")
	var kinds []kernelKind
	for _, spec := range jupyter.Find(root, home) {
		if spec.Name == nodeKernel {
			continue
		}
		language := strings.ToLower(spec.Language)
		if language == "" {
			language = spec.Name
		}
		kinds = append(kinds, kernelKind{spec: spec.Name, language: language, display: spec.DisplayName, jupyter: &spec})
	}
	if _, err := proc.LookPath(nodeKernel, env, a); err == nil {
		kinds = append(kinds, kernelKind{spec: nodeKernel, language: nodeKernel, display: "Node.js"})
	}
	slices.SortFunc(kinds, func(a, b kernelKind) int { return strings.Compare(a.spec, b.spec) })
	return kinds
}

// findKind returns the kernel for a spec's name or a language; of several for
// one language that which is named after it.
func findKind(kinds []kernelKind, asked string) (kernelKind, error) {
	language := canonicalLanguage(asked)
	best, rank := -1, 0
	for i, k := range kinds {
		r := 0
		switch {
		case k.spec == strings.ToLower(asked):
			r = 4
		case k.language != language && canonicalLanguage(k.language) != language:
		case k.spec == language:
			r = 3
		case canonicalLanguage(k.spec) == language:
			r = 2
		default:
			r = 1
		}
		if r > rank {
			best, rank = i, r
		}
	}
	if best >= 0 {
		return kinds[best], nil
	}
	err := errs.E(errs.NotFound, "the sandbox's image has no kernel for %.64q", asked)
	if image := kernelImages[language]; image != "" {
		err = errs.E(errs.NotFound, "the sandbox's image has no kernel for %.64q; the image %s has", asked, image)
	}
	if have := kindNames(kinds); have != "" {
		err = err.Hint("this image has kernels for %s", have)
	}
	return kernelKind{}, err
}

func kindNames(kinds []kernelKind) string {
	var names []string
	for _, k := range kinds {
		if name := canonicalLanguage(k.language); !slices.Contains(names, name) && len(names) < 20 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func (k kernelKind) message() *guestv1.KernelKind {
	return &guestv1.KernelKind{
		Spec: k.spec, Language: shortText(canonicalLanguage(k.language)), DisplayName: shortText(k.display),
	}
}

// shortText bounds a name that the guest's files give.
func shortText(s string) string {
	const most = 100
	s = strings.ToValidUTF8(s, "\uFFFD")
	if r := []rune(s); len(r) > most {
		s = string(r[:most])
	}
	return s
}

// Bounds of what is read to find kernels: their directories belong to users.
const (
	maxSpecEntries = 256
	maxSpecFile    = 128 << 10
)

// specFiles shows the files of kernelspecs, and of them only regular files and
// directories, of bounded size. rootOnly hides what is not root's: root must
// not run what somebody else could have written.
type specFiles struct {
	root     string
	rootOnly bool
}

// Open implements fs.FS.
func (f specFiles) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	file, err := os.OpenFile(filepath.Join(f.root, name), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	st, err := file.Stat()
	if err != nil || !st.Mode().IsRegular() && !st.IsDir() || f.rootOnly && !ownedByRoot(st) {
		file.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return specFile{file, io.LimitReader(file, maxSpecFile)}, nil
}

// ReadDir implements fs.ReadDirFS.
func (f specFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	file, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	dir := file.(specFile)
	defer dir.Close()
	entries, err := dir.ReadDir(maxSpecEntries)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

type specFile struct {
	*os.File
	limited io.Reader
}

func (f specFile) Read(p []byte) (int, error) { return f.limited.Read(p) }

func ownedByRoot(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && sys.Uid == 0
}
