package daemon_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// The guide for language models is there without a token, under both of its names,
// and names no path that the API does not have.
func TestGuideForModels(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.Tokens = "ops:secret" }})
	var guides []string
	for _, path := range []string{"/llms.txt", "/llm.txt"} {
		res, err := http.Get(d.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s = %s %s, %v", path, res.Status, res.Header.Get("Content-Type"), err)
		}
		guides = append(guides, string(text))
	}
	if guides[0] != guides[1] || !strings.HasPrefix(guides[0], "# Cubby\n") {
		t.Errorf("the guides are %.40q and %.40q", guides[0], guides[1])
	}
	golden, err := os.ReadFile("../../api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(golden, &api); err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(GET|POST|PUT|PATCH|DELETE) (/[^` ]*)`").FindAllStringSubmatch(guides[0], -1)
	if len(named) < 20 {
		t.Fatalf("it names %d paths", len(named))
	}
	for _, n := range named {
		if api.Paths[n[2]][strings.ToLower(n[1])] == nil {
			t.Errorf("there is no %s %s", n[1], n[2])
		}
	}
}
