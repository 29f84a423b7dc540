//go:build root && long

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/test/harness"
)

// builtImages is a copy of the image directory in which the named images are
// built by the program from the public registries.
func builtImages(t *testing.T, builds ...[]string) string {
	t.Helper()
	dir := filepath.Join(harness.TempDir(t), "images")
	if out, err := exec.Command("cp", "-al", harness.Images(t), dir).CombinedOutput(); err != nil {
		t.Fatalf("copy the images: %v\n%s", err, out)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, "pins")), os.RemoveAll(filepath.Join(dir, ".build"))); err != nil {
		t.Fatal(err)
	}
	// A lock is of the file, which both directories would share.
	locks, err := filepath.Glob(filepath.Join(dir, ".cache", "*", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, lock := range append(locks, filepath.Join(dir, ".lock")) {
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
	}
	store, err := image.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range builds {
		if err := store.Remove(t.Context(), args[0], nil); err != nil && !errors.Is(err, errs.NotFound) {
			t.Fatal(err)
		}
	}
	for _, args := range builds {
		cmd := exec.Command(harness.Program(t), append([]string{"image", "build", "--image-dir", dir}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("cubby image build %s = %v\n%s", args, err, out)
		}
	}
	return dir
}

// initialize is the first request of the Agent Client Protocol.
const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}`

// What the recipes dev and data promise holds in both isolations, for the
// default user and without a network.
func TestImagesOfRecipesWithSteps(t *testing.T) {
	t.Parallel()
	images := builtImages(t, []string{"dev"}, []string{"data"})
	h := newReal(t, harness.Options{Images: images, Flags: []string{"--pool=off"}})
	url, err := h.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := sdk.New(url)
	var lines []string
	for _, program := range []string{"opencode", "claude", "codex", "codex-acp", "gemini", "pnpm", "bun", "uv"} {
		lines = append(lines, program+" --version")
	}
	// Nobody waits for the one that writes, nor for an agent that has answered.
	for _, program := range []string{"claude-agent-acp", "codex-acp", "gemini --acp", "opencode acp"} {
		lines = append(lines, fmt.Sprintf(`grep -m 1 '"protocolVersion":1' < <((echo '%s'; sleep 60) | timeout 60 %s)`, initialize, program))
	}
	for _, isolation := range []string{"gvisor", "container"} {
		for name, lines := range map[string][]string{
			"dev":  lines,
			"data": {`python3 -c 'import sklearn, statsmodels.api, scipy, seaborn, pypdf, bs4, lxml, docx, xlsxwriter, openpyxl, yaml'`},
		} {
			box, err := c.Create(t.Context(), sdk.CreateOptions{Image: name, Isolation: isolation, Network: &sdk.Network{Mode: "none"}})
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range lines {
				if e, err := c.Exec(t.Context(), box.ID, sdk.Shell(line)); err != nil || e.ExitCode == nil || *e.ExitCode != 0 {
					t.Errorf("%s in %s of %s: %v, %q, %q", line, isolation, name, err, e.Stdout, e.Stderr)
				}
			}
			if err := c.Destroy(t.Context(), box.ID); err != nil {
				t.Error(err)
			}
		}
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
}

// An image of one's own has what the public registries and Debian's archive
// gave, also where the Debian part is built anew below it.
func TestImagesOfOnesOwn(t *testing.T) {
	t.Parallel()
	images := builtImages(t,
		[]string{"mine", "--from", "base", "--pip", "six==1.16.0", "--npm", "is-odd@3.0.1", "--run", "echo kept > /opt/kept"},
		[]string{"more", "--from", "mine", "--apt", "figlet", "--pip", "idna==3.10"})
	h := newReal(t, harness.Options{Images: images, Flags: []string{"--pool=off"}})
	url, err := h.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := sdk.New(url)
	box, err := c.Create(t.Context(), sdk.CreateOptions{Image: "more", Network: &sdk.Network{Mode: "none"}})
	if err != nil {
		t.Fatal(err)
	}
	const line = `python3 -c 'import six, idna; print(six.__version__, idna.__version__)'; NODE_PATH=/usr/local/lib/node_modules node -p 'require("is-odd")(3)'; figlet -I 1; cat /opt/kept`
	e, err := c.Exec(t.Context(), box.ID, sdk.Shell(line))
	if got := strings.Fields(e.Stdout); err != nil || len(got) != 5 || got[0] != "1.16.0" || got[1] != "3.10" || got[2] != "true" || got[4] != "kept" {
		t.Errorf("it has %q, %q, %v", e.Stdout, e.Stderr, err)
	}
	list, err := c.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range list {
		if d := img.Definition; img.Name == "more" && (d == nil || d.Recipe != "base" || len(d.Apt) != 1 || len(d.Steps) != 2) {
			t.Errorf("the definition of more is %+v", d)
		}
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
}
