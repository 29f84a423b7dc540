package pool

import (
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Want is what a create asks for, as far as it decides whether a member will do.
type Want struct {
	Digest    string // of the image
	Isolation sandbox.Isolation
	Limits    sandbox.Limits
	User      string
	Language  string   // of the code that will probably run
	Env       []string // the whole environment
}

// rank says how well a member fits: 0 not at all; best is one whose kernel is for the
// wanted language, then one without a kernel.
func (w Want) rank(k Kind, m *Member) int {
	switch {
	case w.Digest != m.Digest || w.Isolation != k.Isolation || w.Limits != k.Limits || w.User != k.User:
		return 0
	case k.Kernel == "":
		return 2
	case !kernelTakes(m.env, w.Env):
		return 0
	case k.Kernel == w.Language:
		return 3
	}
	return 1
}

// kernelTakes reports whether a kernel that was started with one environment may be
// given another: not when they differ in what is read as it starts, because what
// came of that cannot be changed any more.
func kernelTakes(has, wants []string) bool {
	differs := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return readAtStart(name) && !slices.Contains(b, kv)
		})
	}
	return !differs(has, wants) && !differs(wants, has)
}

// readAtStart reports whether an interpreter, or a library that it loads, may read
// a variable as it starts and never again.
func readAtStart(name string) bool {
	switch name {
	case "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "TERM", "COLUMNS", "LINES",
		"NO_COLOR", "FORCE_COLOR", "VIRTUAL_ENV", "GLIBC_TUNABLES", "OPENSSL_CONF", "SSL_CERT_FILE", "SSL_CERT_DIR":
		return true
	}
	return slices.ContainsFunc([]string{
		"LC_", "LD_", "XDG_", "MALLOC_", "PYTHON", "IPYTHON", "JUPYTER", "CONDA", "NODE_", "UV_", "R_", "RENV_",
		// Modules that are imported before, and the libraries below them.
		"OMP_", "OPENBLAS_", "MKL_", "NUMEXPR_", "BLIS_", "GOTO_", "KMP_", "MPL", "CUDA_", "TORCH_", "TF_", "HF_", "TRANSFORMERS_", "NUMBA_", "PANDAS_", "POLARS_", "ARROW_",
	}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
