package tasks

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/task"
)

func writeAll(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBuildCommand(t *testing.T) {
	t.Parallel()
	const manifest = `{"scripts":{"build":"vite build"}}`
	for _, tt := range []struct {
		name    string
		files   map[string]string
		program string // "" is no build
		pnpm    bool
	}{
		{"no project", nil, "", true},
		{"no script", map[string]string{"package.json": `{"scripts":{"dev":"vite"}}`, "pnpm-lock.yaml": ""}, "", true},
		{"no scripts", map[string]string{"package.json": `{}`}, "", true},
		{"an empty script", map[string]string{"package.json": `{"scripts":{"build":""}}`}, "", true},
		{"a script that is none", map[string]string{"package.json": `{"scripts":{"build":["vite"]}}`}, "", true},
		{"no JSON", map[string]string{"package.json": `scripts: build`}, "", true},
		{"pnpm", map[string]string{"package.json": manifest, "pnpm-lock.yaml": ""}, "pnpm", false},
		{"npm", map[string]string{"package.json": manifest, "package-lock.json": ""}, "npm", true},
		{"yarn", map[string]string{"package.json": manifest, "yarn.lock": ""}, "yarn", true},
		{"bun", map[string]string{"package.json": manifest, "bun.lock": ""}, "bun", true},
		{"old bun", map[string]string{"package.json": manifest, "bun.lockb": ""}, "bun", true},
		{"no lock with pnpm", map[string]string{"package.json": manifest}, "pnpm", true},
		{"no lock without pnpm", map[string]string{"package.json": manifest}, "npm", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, bin := t.TempDir(), t.TempDir()
			writeAll(t, dir, tt.files)
			if tt.pnpm {
				writeAll(t, bin, map[string]string{"pnpm": "#!/bin/sh\n"})
			}
			got := buildCommand(dir, []string{"PATH=" + bin})
			if want := []string{tt.program, "run", "build"}; tt.program == "" && got != nil || tt.program != "" && !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

func TestCheckBuild(t *testing.T) {
	t.Parallel()
	kids := &children{own: make(map[int]bool)}
	redact := newRedactor([]string{"A_TOKEN=tok-123456"}, nil)
	build := func(ctx context.Context, script string) task.Build {
		return checkBuild(ctx, kids, []string{"sh", "-c", script}, []string{"PATH=" + os.Getenv("PATH")}, t.TempDir(), redact)
	}
	if got := build(t.Context(), "echo fine"); !got.OK || got.Message != "" {
		t.Errorf("a build that succeeds: %+v", got)
	}
	got := build(t.Context(), `i=0; while [ $i -lt 5000 ]; do echo "line $i ü"; i=$((i+1)); done; echo tok-123456 >&2; exit 1`)
	if got.OK || len([]rune(got.Message)) != maxBuildOutput || !strings.HasSuffix(got.Message, "line 4999 ü\n[A_TOKEN]") {
		t.Errorf("a build that fails: %d characters, %t, …%q", len([]rune(got.Message)), got.OK, tail(got.Message, 60))
	}
	if got := build(t.Context(), "exit 7"); got.OK || got.Message != "exit status 7" {
		t.Errorf("a silent build that fails: %+v", got)
	}
	if got := build(t.Context(), "sleep 1000 & echo started"); !got.OK {
		t.Errorf("a build that leaves something: %+v", got)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errCancelled)
	if got := build(ctx, "sleep 1000 & sleep 1000"); got.OK {
		t.Errorf("a build that is cancelled: %+v", got)
	}
	if got := checkBuild(t.Context(), kids, []string{"no-such-manager"}, nil, t.TempDir(), redact); got.OK || !strings.Contains(got.Message, "not found") {
		t.Errorf("no program: %+v", got)
	}
}

// A build that fails does not make the task failed.
func TestTaskWithABuildThatFails(t *testing.T) {
	t.Parallel()
	cwd, bin := t.TempDir(), t.TempDir()
	writeAll(t, cwd, map[string]string{"package.json": `{"scripts":{"build":"x"}}`, "yarn.lock": ""})
	writeAll(t, bin, map[string]string{"yarn": "#!/bin/sh\necho it is broken; exit 1\n"})
	r := start(t, "work", task.Order{Prompt: "x", Cwd: cwd}, map[string]string{"PATH": bin + ":" + os.Getenv("PATH")})
	result := r.result()
	if result.Status != task.Succeeded || result.BuildOK || result.BuildMessage != "it is broken" {
		t.Errorf("result: %+v", result)
	}
	if got := of[task.Build](r, task.BuildType); len(got) != 1 || got[0].OK || got[0].Message != "it is broken" {
		t.Errorf("build: %+v", got)
	}
}
