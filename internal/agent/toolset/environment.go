package toolset

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/excerpt"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/tools"
)

// Environment says in words for a model what the thread's sandboxes really have: of
// the one that is lent to it, or of those that are made for it.
func (t *Thread) Environment(ctx context.Context) (string, error) {
	ctx = t.as(ctx)
	spec := t.core.Sandboxes().Defaults()
	if id := t.options.Sandbox; id != "" {
		b, err := t.core.Sandboxes().Get(ctx, id)
		if err != nil {
			return "", err
		}
		spec = b.Spec
	}
	images, err := t.core.Images(ctx)
	if err != nil {
		return "", err
	}
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, "- "+fmt.Sprintf(format, args...)) }
	here, elsewhere := languagesOf(images, spec.Image)
	say("Linux, image %q. Languages of execute_code in it: %s.", spec.Image, orNone(here))
	if t.options.Sandbox == "" {
		for _, l := range elsewhere {
			say("%s runs in a session of its own (language %q), which has another image.", l.words, l.name)
		}
	}
	say("Working directory: %s. User: %s.", sandbox.WorkspaceDir, spec.User)
	say("Limits of a sandbox: %s.", limits(spec.Limits))
	say("Network: %s.", network(spec.Network))
	say("A call of execute_code or execute_terminal may take %d seconds at most; start_command is for what takes longer and for servers.", int(tools.LongestTimeout/time.Second))
	return strings.Join(lines, "\n"), nil
}

// language is one that code can be run in: its name, and the program that an image
// with it has.
type language struct{ name, words, program string }

var allLanguages = []language{
	{sandbox.RuntimePython, "Python", "usr/bin/python3"},
	{sandbox.RuntimeNode, "JavaScript (Node.js)", "usr/bin/node"},
	{sandbox.RuntimeR, "R", "usr/bin/R"},
}

// imageOfR is what sandboxes of R are made from.
const imageOfR = "r"

// languagesOf returns what an image has, and what only the image of R has.
func languagesOf(images []image.Image, name string) (here, elsewhere []language) {
	for _, l := range allLanguages {
		switch {
		case anyHas(images, name, l):
			here = append(here, l)
		case l.name == sandbox.RuntimeR && anyHas(images, imageOfR, l):
			elsewhere = append(elsewhere, l)
		}
	}
	return here, elsewhere
}

func anyHas(images []image.Image, name string, l language) bool {
	for _, i := range images {
		if i.Name == name && !i.Damaged && has(i.Dir, l.program) {
			return true
		}
	}
	return false
}

// has reports whether an image has a program. Whoever made the image decides what
// is in it: no link of it leads out.
func has(dir, program string) bool {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	if info, err := root.Stat(program); err == nil {
		return info.Mode().IsRegular()
	}
	// An absolute link, as alternatives make, is one within the image.
	info, err := root.Lstat(program)
	return err == nil && info.Mode()&os.ModeSymlink != 0
}

func orNone(languages []language) string {
	if len(languages) == 0 {
		return "none"
	}
	words := make([]string, len(languages))
	for i, l := range languages {
		words[i] = l.words
	}
	return strings.Join(words, ", ")
}

func limits(l sandbox.Limits) string {
	var parts []string
	if l.MemoryBytes > 0 {
		parts = append(parts, size(l.MemoryBytes)+" memory")
	}
	if l.CPUs > 0 {
		parts = append(parts, strconv.FormatFloat(l.CPUs, 'g', -1, 64)+" CPUs")
	}
	if l.PIDs > 0 {
		parts = append(parts, fmt.Sprintf("%d processes", l.PIDs))
	}
	if l.DiskBytes > 0 {
		parts = append(parts, size(l.DiskBytes)+" disk")
	}
	return strings.Join(parts, ", ")
}

func size(bytes int64) string {
	if bytes >= 1<<30 {
		return strconv.FormatFloat(float64(bytes*10/(1<<30))/10, 'g', -1, 64) + " GiB"
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

// maxHosts is how many hosts of an allow list are named.
const maxHosts = 40

func network(p sandbox.Policy) string {
	switch p.Mode {
	case sandbox.NetworkNone:
		return "none"
	case sandbox.NetworkOpen:
		return "every public host"
	}
	hosts := p.Allow
	if len(hosts) == 0 {
		hosts = sandbox.DefaultAllow()
	}
	more := ""
	if len(hosts) > maxHosts {
		more = fmt.Sprintf(" and %d more", len(hosts)-maxHosts)
		hosts = hosts[:maxHosts]
	}
	return "only an allow list of hosts: " + strings.Join(hosts, ", ") + more + " (the operator may have added others); anything else is refused"
}

// maxInstructions bounds what is read of AGENTS.md.
const maxInstructions = 32 << 10

// Instructions is what AGENTS.md in the workspace of the thread's sandbox says to
// agents; "" when there is none. No sandbox is made, woken or started for it: one that
// sleeps says nothing.
func (t *Thread) Instructions(ctx context.Context) (string, error) {
	ctx = t.as(ctx)
	ids := []string{t.options.Sandbox}
	if t.options.Sandbox == "" {
		ids = ids[:0]
		for _, l := range allLanguages {
			if b, _, err := t.look(ctx, ownKey{t.who.Tenant, t.name, l.name}); err == nil && b.ID != "" {
				ids = append(ids, string(b.ID))
			}
		}
	}
	for _, id := range ids {
		b, err := t.core.Sandboxes().Get(ctx, id)
		if err != nil || b.State != sandbox.Running && b.State != sandbox.Stopped {
			continue
		}
		if text := t.agentsFile(ctx, id); text != "" {
			return text, nil
		}
	}
	return "", ctx.Err()
}

// agentsFile is the text of AGENTS.md; "" when it cannot be read or is none.
func (t *Thread) agentsFile(ctx context.Context, id string) string {
	r, f, err := t.core.Files().Read(ctx, id, sandbox.WorkspaceDir+"/AGENTS.md", 0, maxInstructions)
	if err != nil {
		return ""
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return ""
	}
	text := strings.ToValidUTF8(string(b), "\ufffd")
	text, _ = excerpt.Text(text, maxInstructions, max(f.Size-int64(len(b)), 0))
	return text
}
