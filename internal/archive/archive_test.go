package archive_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/errs"
)

func TestOpen(t *testing.T) {
	good := archive.Config{URL: "s3://bucket/some/prefix", Endpoint: "http://127.0.0.1:9000", AccessKey: "key", SecretKey: "hunter2"}
	if _, err := archive.Open(good); err != nil {
		t.Errorf("Open = %v", err)
	}
	aws := good
	aws.Endpoint = ""
	if _, err := archive.Open(aws); err != nil {
		t.Errorf("Open of AWS = %v", err)
	}
	for key, edit := range map[string]func(*archive.Config){
		"archive-url":        func(c *archive.Config) { c.URL = "https://bucket" },
		"archive-url ":       func(c *archive.Config) { c.URL = "s3://" },
		"archive-url  ":      func(c *archive.Config) { c.URL = "s3://a:b@bucket" },
		"archive-endpoint":   func(c *archive.Config) { c.Endpoint = "127.0.0.1:9000" },
		"archive-endpoint ":  func(c *archive.Config) { c.Endpoint = "http://host/path" },
		"archive-access-key": func(c *archive.Config) { c.AccessKey = "" },
		"archive-secret-key": func(c *archive.Config) { c.SecretKey = "" },
	} {
		c := good
		edit(&c)
		_, err := archive.Open(c)
		if !errors.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err).Message, strings.TrimSpace(key)) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: Open = %v", key, err)
		}
	}
}
