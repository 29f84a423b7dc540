package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/doctor"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// TestOutdatedImage: that an image is older than its recipe is said by the API,
// by what asks a daemon for its images, and by the daemon when it starts.
func TestOutdatedImage(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	const complaint = "older than its recipe"
	ls := func() result { return cubby(t, d.URL, nil, "image", "ls") }
	if res := ls(); res.code != 0 || strings.Contains(res.stdout, "outdated") || res.stderr != "" {
		t.Errorf("image ls before: %+v", res)
	}
	outdate(t, filepath.Join(d.Dir, "images"))

	list, err := client.New(d.URL).Images(t.Context())
	if err != nil || len(list) != 1 || !list[0].Outdated {
		t.Errorf("Images = %+v, %v", list, err)
	}
	if res := cubby(t, d.URL, nil, "image", "ls", "--json"); !strings.Contains(res.stdout, `"outdated": true`) {
		t.Errorf("image ls --json: %+v", res)
	}
	for _, tt := range []struct{ where, end string }{
		{"", ": cubby image build base, on the daemon's machine\n"}, {filepath.Join(d.Dir, "images"), ": cubby image build base\n"},
	} {
		args := []string{"image", "ls"}
		if tt.where != "" {
			args = append(args, "--image-dir", tt.where)
		}
		res := cubby(t, d.URL, nil, args...)
		if res.code != 0 || !strings.Contains(res.stdout, "base (outdated)") || res.stderr != "cubby: base is "+complaint+tt.end {
			t.Errorf("%q: %+v", args, res)
		}
	}

	res := cubbyEnv(t, []string{"CUBBY_URL=" + d.URL, "CUBBY_DATA_DIR=" + t.TempDir()}, nil, nil, "doctor", "--no-boot", "--json")
	var checks []doctor.Check
	if err := json.Unmarshal([]byte(res.stdout), &checks); err != nil {
		t.Fatalf("%v: %+v", err, res)
	}
	warned := false
	for _, c := range checks {
		warned = warned || c.Name == "image base" && c.Verdict == doctor.Warned && c.Detail == complaint
	}
	if !warned {
		t.Errorf("doctor: %s", res.stdout)
	}

	if strings.Contains(d.Log(), complaint) {
		t.Errorf("the daemon warned of an image that was not outdated when it started")
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	again := daemontest.Start(t, daemontest.Options{Dir: d.Dir})
	if log := again.Log(); !strings.Contains(log, `level=WARN msg="an image is older than its recipe" image=base renew="cubby image build base"`) {
		t.Errorf("the daemon's log does not name the image:\n%s", log)
	}
}

// outdate makes the image base one that an earlier recipe built.
func outdate(t *testing.T, dir string) {
	t.Helper()
	var names struct{ Names map[string]string }
	readJSON(t, filepath.Join(dir, "names.json"), &names)
	record := filepath.Join(dir, names.Names["base"], "image.json")
	var fields map[string]any
	readJSON(t, record, &fields)
	fields["source"], fields["recipe"] = "build base", "an earlier one"
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, to); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
