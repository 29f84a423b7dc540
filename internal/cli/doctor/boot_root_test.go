//go:build root

package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/test/harness"
)

// TestDoctorBootsRealSandboxes with the image that is there, and with nothing
// but cubby itself where there is none.
func TestDoctorBootsRealSandboxes(t *testing.T) {
	for name, images := range map[string]string{"base": harness.Images(t), "no image": filepath.Join(harness.TempDir(t), "none")} {
		t.Run(name, func(t *testing.T) {
			// The built program: without an image it boots itself, which
			// has to be static.
			cmd := exec.Command(harness.Program(t), "doctor", "--json", "--data-dir", harness.TempDir(t), "--image-dir", images)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "CUBBY_URL=http://127.0.0.1:1", harness.AnyDisk}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("doctor: %v\n%s%s", err, out, &stderr)
			}
			var checks []Check
			if err := json.Unmarshal(out, &checks); err != nil {
				t.Fatal(err)
			}
			booted := map[string]Verdict{}
			for _, c := range checks {
				if c.Group == "A real sandbox" {
					booted[c.Name] = c.Verdict
				}
			}
			for _, isolation := range []string{"gvisor", "container"} {
				if booted[isolation] != Good {
					t.Errorf("%s: %q, want ok:\n%s", isolation, booted[isolation], out)
				}
			}
			if name == "base" && booted["user namespace"] == "" {
				t.Errorf("nothing about the user namespace of containers:\n%s", out)
			}
			if _, err := os.Stat(images); name == "no image" && err == nil {
				t.Error("the doctor made the image directory")
			}
		})
	}
}
