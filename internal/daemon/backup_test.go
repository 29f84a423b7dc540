package daemon_test

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/backup"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// TestABackupIsForTheOperator: it has the files and the secrets of all tenants.
func TestABackupIsForTheOperator(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.Tokens = "ops:s3cret,bob@acme:s3cret-too" }})
	ask := func(token string, without ...string) (status int, data []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL+"/v1/backup?"+url.Values{"without": without}.Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err = io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, data
	}
	if status, _ := ask(""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", status)
	}
	if status, text := ask("s3cret-too"); status != http.StatusForbidden {
		t.Errorf("with a tenant's token: %d %s", status, text)
	}
	if status, text := ask("s3cret", "disks"); status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		t.Errorf("without disks: %d %s", status, text)
	}
	c := client.New(d.URL, client.WithToken("s3cret"))
	defer c.Close()
	box, err := c.Create(t.Context(), client.CreateOptions{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	// Its disk is a directory, whose writers cannot be held.
	if _, err := c.Stop(t.Context(), box.ID, 0); err != nil {
		t.Fatal(err)
	}
	status, data := ask("s3cret")
	if status != http.StatusOK {
		t.Fatalf("with the operator's token: %d %.200s", status, data)
	}
	if h, err := backup.Unpack(t.TempDir(), bytes.NewReader(data)); err != nil {
		t.Errorf("Unpack = %+v, %v", h, err)
	}
}
