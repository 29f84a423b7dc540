package archtest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cubbyhq/cubby/"

// place is where a package stands.
type place struct {
	// layer: the package imports only those of lower layers.
	layer int
	// only, when not nil, is instead of the layer all that it imports of this
	// module.
	only []string
	// by, when not nil, names all that may import it.
	by []string
}

// places has every package of the module but generated code, which is below
// all and imports only itself. "…" ends a name that stands for what is below
// it too.
func places() map[string]place {
	return map[string]place{
		"internal/errs": {layer: 0},
		"images":        {layer: 0, by: []string{"internal/image"}},

		"internal/sandbox": {layer: 1},

		"internal/address": {layer: 2},
		"internal/capability": {only: []string{"api/gen/…", "internal/errs", "internal/sandbox"},
			by: []string{"internal/driver/agent", "internal/driver/oci", "internal/driver/drivertest", "internal/guest"}},
		"internal/channel": {layer: 2},
		// The agent's nouns, and what models are asked.
		"internal/conversation": {layer: 2},
		"internal/llm":          {layer: 2},
		"internal/collector":    {layer: 2},
		"internal/config":       {layer: 2},
		"internal/driver":       {layer: 2},
		"internal/embedded":     {layer: 2},
		"internal/event":        {layer: 2},
		"internal/excerpt":      {layer: 2},
		"internal/filetree":     {layer: 2, by: []string{"internal/driver/oci", "internal/guestd", "internal/storage/local", "internal/filetree/…"}},
		"internal/forklock":     {layer: 1, by: []string{"internal/driver/oci/…", "internal/embedded", "internal/filetree"}},
		"internal/git":          {layer: 2},
		// What a kernel shows; core reads it, the agent talks to kernels.
		"internal/kernel":    {layer: 2},
		"internal/instance":  {layer: 2, only: []string{"internal/errs", "internal/poll"}, by: []string{"internal/backup", "internal/daemon"}},
		"internal/backup":    {layer: 3, only: []string{"internal/errs", "internal/instance"}, by: []string{"internal/backup/take", "internal/cli/backup", "internal/daemon"}},
		"internal/hostdisk":  {layer: 2, by: []string{"internal/daemon", "internal/driver/oci", "internal/storage/local"}},
		"internal/keylock":   {layer: 2},
		"internal/meminfo":   {layer: 2},
		"internal/packages":  {layer: 2},
		"internal/poll":      {layer: 2},
		"internal/redirect":  {layer: 2, by: []string{"internal/driver/oci", "internal/driver/oci/network", "internal/guestd"}},
		"internal/relay":     {layer: 2, by: []string{"internal/egress", "internal/front/preview", "internal/guestd"}},
		"internal/resolver":  {layer: 2, by: []string{"internal/guestd"}},
		"internal/seal":      {layer: 2},
		"internal/session":   {layer: 2},
		"internal/storage":   {layer: 2},
		"internal/telemetry": {layer: 2},
		"internal/tenancy":   {layer: 2},
		"internal/coalesce":  {layer: 2},
		"internal/task":      {layer: 2},
		"internal/uptime":    {layer: 2, by: []string{"internal/guestd", "internal/guestd/…", "internal/kernel/jupyter"}},

		"internal/archive":         {layer: 3},
		"internal/auth":            {layer: 3},
		"internal/egress":          {layer: 3},
		"internal/guest":           {layer: 3},
		"internal/hostfiles":       {layer: 3},
		"internal/image":           {layer: 3},
		"internal/journal":         {layer: 3},
		"internal/store":           {layer: 3},
		"internal/store/canonical": {only: []string{"internal/errs"}, by: []string{"internal/store"}},
		"internal/store/column":    {only: []string{"internal/errs"}, by: []string{"internal/store"}},
		"internal/store/notice":    {only: []string{"internal/sandbox"}, by: []string{"internal/store"}},
		"internal/store/engine": {only: []string{"internal/coalesce", "internal/errs", "internal/sandbox", "internal/store/wal", "internal/tenancy"},
			by: []string{"internal/store"}},
		"internal/store/wal":      {only: []string{}, by: []string{"internal/store/engine"}},
		"internal/agent/loop":     {layer: 3},
		"internal/agent/items":    {layer: 5},
		"internal/agent/schedule": {only: []string{"internal/errs"}, by: []string{"internal/agent"}},
		"internal/webhook":        {layer: 5},
		"internal/agent/settings": {layer: 6},
		// Dialects do not know each other; who wants a model asks providers for one.
		"internal/llm/wire":      {layer: 3, by: []string{"internal/llm/…"}},
		"internal/llm/openai":    {layer: 4, by: []string{"internal/llm/providers"}},
		"internal/llm/anthropic": {layer: 4, by: []string{"internal/llm/providers"}},
		"internal/llm/gemini":    {layer: 4, by: []string{"internal/llm/providers"}},
		"internal/llm/providers": {layer: 5},
		// Core knows drivers and storage by their contracts.
		"internal/driver/agent": {only: []string{"api/gen/…", "internal/capability", "internal/driver", "internal/errs", "internal/sandbox"},
			by: []string{"internal/driver/oci", "internal/driver/drivertest"}},
		"internal/driver/oci/cgroup": {only: []string{"internal/driver", "internal/driver/oci/procstat", "internal/errs", "internal/poll", "internal/sandbox"},
			by: []string{"internal/driver/oci", "internal/driver/oci/proctree"}},
		"internal/driver/oci/procstat":  {only: []string{}, by: []string{"internal/driver/oci/cgroup", "internal/driver/oci/filelocks", "internal/driver/oci/idrange", "internal/driver/oci/pidfd", "internal/driver/oci/proctree"}},
		"internal/driver/oci/runtimes":  {only: []string{"internal/driver", "internal/embedded", "internal/errs"}, by: []string{"internal/driver/oci"}},
		"internal/driver/oci/seccomp":   {only: []string{}, by: []string{"internal/driver/oci"}},
		"internal/driver/oci/filelocks": {only: []string{"internal/driver/oci/procstat"}, by: []string{"internal/driver/oci"}},
		"internal/driver/oci/idrange":   {only: []string{"internal/driver/oci/procstat", "internal/errs"}, by: []string{"internal/driver/oci", "internal/driver/oci/userns"}},
		"internal/driver/oci/proctree":  {only: []string{"internal/driver/oci/cgroup", "internal/driver/oci/procstat"}, by: []string{"internal/driver/oci"}},
		"internal/driver/oci/userns": {only: []string{"internal/driver/oci/idrange", "internal/driver/oci/spare", "internal/driver/oci/thread", "internal/sandbox"},
			by: []string{"internal/driver/oci"}},
		"internal/driver/oci/kernellog": {only: []string{"internal/driver"}, by: []string{"internal/driver/oci"}},
		"internal/driver/oci/network": {only: []string{"internal/driver/oci/thread", "internal/errs", "internal/redirect"},
			by: []string{"internal/driver/oci", "internal/cli/doctor"}},
		"internal/driver/oci/spare":      {only: []string{}, by: []string{"internal/driver/oci", "internal/driver/oci/userns"}},
		"internal/driver/oci/thread":     {only: []string{}, by: []string{"internal/driver/oci", "internal/driver/oci/network", "internal/driver/oci/pidfd", "internal/driver/oci/userns"}},
		"internal/driver/oci/truststore": {only: []string{"internal/driver", "internal/errs"}, by: []string{"internal/driver/oci"}},
		"internal/driver/oci/pidfd":      {only: []string{"internal/driver/oci/procstat", "internal/driver/oci/thread"}, by: []string{"internal/driver/oci"}},
		"internal/driver/oci/memory":     {only: []string{"internal/errs", "internal/forklock"}, by: []string{"internal/driver/oci"}},
		"internal/driver/oci":            {layer: 3, by: []string{"internal/daemon", "internal/cli/doctor"}},
		"internal/storage/local":         {layer: 3, by: []string{"internal/daemon"}},
		"internal/backup/take":           {layer: 4, only: []string{"internal/backup", "internal/errs", "internal/sandbox", "internal/store"}, by: []string{"internal/daemon"}},

		"internal/core/live/activity": {only: []string{"internal/sandbox"}, by: []string{"internal/core/live"}},

		// Core's rooms, from the leaves up: those of one layer do not know each
		// other.
		"internal/core/budget":     {layer: 4},
		"internal/core/environ":    {layer: 4},
		"internal/core/repair":     {layer: 4},
		"internal/core/gate":       {layer: 4},
		"internal/core/scope":      {layer: 5},
		"internal/core/secrets":    {layer: 5},
		"internal/core/replay":     {layer: 5, by: []string{"internal/core/live"}},
		"internal/core/history":    {layer: 6},
		"internal/core/diskrepair": {layer: 6, by: []string{"internal/core/lifecycle"}},
		"internal/core/live":       {layer: 7},
		"internal/core/pool":       {layer: 7},
		"internal/core/admission":  {layer: 8},
		"internal/core/cell":       {layer: 8},
		"internal/core/ports":      {layer: 8},
		"internal/core/preview":    {layer: 8},
		"internal/core/program":    {layer: 8},
		"internal/core/services":   {layer: 8},
		"internal/core/tasks":      {layer: 9},
		"internal/core/tenants":    {layer: 9},
		"internal/core/threads":    {layer: 9},
		"internal/core/transfer":   {layer: 8},
		"internal/core/lifecycle":  {layer: 10},
		"internal/core/imagebuild": {layer: 11},
		"internal/core/snapshot":   {layer: 11},

		"internal/core":          {layer: 12},
		"internal/front":         {layer: 13},
		"internal/front/sse":     {layer: 14, by: []string{"internal/front/…"}},
		"internal/front/httpapi": {layer: 14, by: []string{"internal/front/rest", "internal/front/backups", "internal/front/displays", "internal/front/settings", "internal/front/webhooks", "internal/front/agentapi", "internal/front/compat/…", "internal/daemon"}},
		// What models can do, for the doors that offer it to them.
		"internal/tools": {layer: 14, by: []string{"internal/front/mcp", "internal/agent/toolset", "internal/front/displays"}},
		// Doors and dialects do not know each other.
		"internal/front/preview":             {layer: 15},
		"internal/front/rest/problem":        {only: []string{"internal/errs", "internal/front"}, by: []string{"internal/front/rest"}},
		"internal/front/rest":                {layer: 15},
		"internal/front/compat/ecs":          {layer: 15, by: []string{"internal/daemon"}},
		"internal/front/compat/sandboxagent": {layer: 15, by: []string{"internal/daemon"}},
		"internal/front/compat/sandboxed":    {layer: 15, by: []string{"internal/daemon"}},
		"internal/front/mcp":                 {layer: 15},
		"internal/front/rpc":                 {layer: 15},
		"internal/front/terminal":            {layer: 15},
		"internal/front/settings":            {layer: 15, by: []string{"internal/daemon"}},
		"internal/front/webhooks":            {layer: 15, by: []string{"internal/daemon"}},
		"internal/front/tunnel":              {layer: 15},
		"internal/front/web":                 {layer: 15},
		"internal/front/displays":            {layer: 15, by: []string{"internal/daemon"}},
		"internal/front/backups":             {layer: 15, by: []string{"internal/daemon"}},
		// What the agent's models may call, and the agent itself: it stands above core,
		// as doors do, and below its own door.
		"internal/agent/toolset":        {layer: 15},
		"internal/agent":                {layer: 16},
		"internal/front/agentapi/modes": {only: []string{"internal/conversation", "internal/errs"}, by: []string{"internal/front/agentapi"}},
		"internal/front/agentapi":       {layer: 17, by: []string{"internal/daemon"}},
		"internal/daemon":               {layer: 18},

		// The program inside the sandbox is small and trusts nothing of the
		// host's side.
		"internal/guestd": {only: []string{"api/gen/…", "internal/errs", "internal/sandbox", "internal/filetree",
			"internal/guestd/kernels", "internal/guestd/proc", "internal/redirect", "internal/relay", "internal/resolver", "internal/uptime"},
			by: []string{"cmd/cubby-init", "internal/driver/drivertest"}},
		"internal/guestd/kernels": {only: []string{"api/gen/…", "internal/errs", "internal/sandbox", "internal/guestd/proc",
			"internal/kernel", "internal/kernel/jupyter", "internal/kernel/node", "internal/kernel/startup", "internal/uptime"}, by: []string{"internal/guestd"}},
		"internal/guestd/proc": {only: []string{"api/gen/…", "internal/errs", "internal/sandbox", "internal/session", "internal/uptime"},
			by: []string{"internal/guestd", "internal/guestd/kernels", "internal/guestd/tasks", "cmd/cubby-init"}},
		"internal/guestd/tasks":   {only: []string{"internal/errs", "internal/guestd/proc", "internal/task"}, by: []string{"cmd/cubby-init"}},
		"internal/kernel/jupyter": {only: []string{"internal/kernel", "internal/uptime"}, by: []string{"internal/guestd/kernels"}},
		"internal/kernel/node":    {only: []string{"internal/kernel"}, by: []string{"internal/guestd/kernels"}},
		"internal/kernel/startup": {only: []string{"internal/kernel"}, by: []string{"internal/guestd/kernels"}},
		// Anybody may build on the SDK without the engine: it is a module of
		// its own.
		"client":                    {only: []string{"client/display", "client/internal/…", "client/task"}},
		"client/agent":              {only: []string{"client", "client/internal/sse"}},
		"client/display":            {only: []string{}},
		"client/task":               {only: []string{}},
		"client/internal/backoff":   {only: []string{}, by: []string{"client"}},
		"client/internal/deadline":  {only: []string{}, by: []string{"client"}},
		"client/internal/pack":      {only: []string{}, by: []string{"client"}},
		"client/settings":           {only: []string{"client"}},
		"client/internal/sse":       {only: []string{}, by: []string{"client", "client/agent"}},
		"client/internal/texts":     {only: []string{}, by: []string{"client"}},
		"client/internal/transport": {only: []string{}, by: []string{"client"}},
		"client/internal/unpack":    {only: []string{}, by: []string{"client"}},
		// A command does what any client could; serve, image, doctor and bench
		// are the programs that run on the host itself.
		"internal/cli": {only: []string{"client", "internal/bench", "internal/bridge", "internal/cli/chat", "internal/cli/cp", "internal/cli/doctor", "internal/cli/format",
			"internal/cli/backup", "internal/cli/images", "internal/cli/localdaemon", "internal/cli/ports", "internal/cli/prompt", "internal/cli/render", "internal/cli/secrets", "internal/cli/services", "internal/cli/settings", "internal/cli/tasks", "internal/cli/tty", "internal/cli/values", "internal/collector", "internal/config", "internal/daemon", "internal/egress",
			"internal/embedded", "internal/errs", "internal/image", "internal/sandbox", "internal/telemetry"}, by: []string{"cmd/cubby"}},
		"internal/cli/doctor": {only: []string{"client", "internal/cli/format", "internal/config", "internal/daemon", "internal/driver/oci", "internal/driver/oci/network",
			"internal/embedded", "internal/errs", "internal/image", "internal/meminfo", "internal/telemetry"}, by: []string{"internal/cli"}},
		"internal/cli/localdaemon": {only: []string{"internal/config", "internal/daemon", "internal/errs", "internal/telemetry"}, by: []string{"internal/cli", "internal/cli/images"}},
		"internal/cli/backup": {only: []string{"client", "internal/backup", "internal/cli/format", "internal/config", "internal/daemon", "internal/errs", "internal/telemetry"},
			by: []string{"internal/cli"}},
		"internal/cli/images": {only: []string{"client", "internal/cli/format", "internal/cli/localdaemon", "internal/cli/tty", "internal/config", "internal/image"},
			by: []string{"internal/cli"}},
		// The other rooms know the SDK and each other at most.
		"internal/cli/chat": {only: []string{"client", "client/agent", "client/settings", "internal/cli/edit", "internal/cli/format", "internal/cli/markdown",
			"internal/cli/render", "internal/cli/tty"}, by: []string{"internal/cli"}},
		"internal/cli/edit":     {only: []string{"client"}, by: []string{"internal/cli/chat", "internal/cli/prompt"}},
		"internal/cli/markdown": {only: []string{"internal/cli/render"}, by: []string{"internal/cli/chat"}},
		"internal/cli/cp":       {only: []string{"client"}, by: []string{"internal/cli"}},
		"internal/cli/format":   {only: []string{}, by: []string{"internal/cli", "internal/cli/…"}},
		"internal/cli/tty":      {only: []string{"client"}, by: []string{"internal/cli", "internal/cli/…"}},
		"internal/cli/ports":    {only: []string{"client", "internal/cli/format"}, by: []string{"internal/cli"}},
		"internal/cli/secrets":  {only: []string{"client", "internal/cli/format", "internal/cli/tty"}, by: []string{"internal/cli"}},
		"internal/cli/settings": {only: []string{"client", "client/settings", "internal/cli/format", "internal/cli/tty"}, by: []string{"internal/cli"}},
		"internal/cli/tasks":    {only: []string{"client", "client/task", "internal/cli/format", "internal/cli/tty", "internal/cli/values"}, by: []string{"internal/cli"}},
		"internal/cli/services": {only: []string{"client", "internal/cli/format"}, by: []string{"internal/cli"}},
		"internal/cli/values":   {only: []string{"internal/config"}, by: []string{"internal/cli", "internal/cli/tasks"}},
		"internal/cli/render":   {only: []string{"client", "internal/cli/format"}, by: []string{"internal/cli", "internal/cli/chat", "internal/cli/markdown", "internal/cli/prompt"}},
		"internal/cli/prompt":   {only: []string{"client", "internal/cli/edit", "internal/cli/render", "internal/cli/tty"}, by: []string{"internal/cli"}},
		// MCP to MCP: it knows the protocol and nothing of sandboxes.
		"internal/bridge": {only: []string{}, by: []string{"internal/cli"}},
		"internal/bench": {only: []string{"client", "internal/embedded", "internal/errs", "internal/image", "internal/meminfo", "internal/sandbox",
			"internal/store", "internal/telemetry"}, by: []string{"internal/cli"}},
		"cmd/cubby":              {only: []string{"internal/cli"}},
		"cmd/cubby-init":         {only: []string{"internal/collector", "internal/guestd", "internal/guestd/proc", "internal/guestd/tasks", "internal/task"}},
		"cmd/runsc":              {only: []string{"internal/collector"}},
		"internal/embedded/pack": {only: []string{"internal/embedded"}},

		// Test code that several packages share.
		"internal/archtest": {only: []string{}},
		"internal/driver/drivertest": {only: []string{"api/gen/…", "internal/capability", "internal/channel", "internal/driver", "internal/driver/agent", "internal/errs",
			"internal/guestd", "internal/sandbox"}, by: []string{"internal/daemon/daemontest"}},
		"internal/filetree/filetreetest": {layer: 3, by: []string{}},
		"internal/archive/archivetest":   {only: []string{}, by: []string{}},
		"internal/git/gittest":           {only: []string{}, by: []string{"test/e2e"}},
		"internal/image/imagetest":       {only: []string{}, by: []string{"internal/core", "test/e2e"}},
		"internal/packages/packagestest": {only: []string{}, by: []string{"test/e2e"}},
		"internal/storage/storagetest":   {only: []string{"internal/errs", "internal/sandbox", "internal/storage"}, by: []string{}},
		"internal/llm/llmtest":           {only: []string{"internal/llm", "internal/llm/wire"}, by: []string{}},
		"internal/disktest":              {only: []string{}, by: []string{}},
		"internal/browsertest":           {only: []string{}, by: []string{}},
		"internal/store/postgrestest":    {only: []string{}, by: []string{}},
		"internal/store/storetest":       {only: []string{"internal/seal", "internal/store"}, by: []string{"internal/daemon/daemontest"}},
		"internal/daemon/daemontest":     {layer: 19, by: []string{}},
		"test/e2e":                       {layer: 18},
		"test/durability":                {layer: 18},
		"test/langgraph":                 {layer: 20},
		"test/security/agent":            {only: []string{"internal/poll", "test/harness"}},
		"test/security/egress":           {only: []string{"client", "test/harness"}},
		"test/security/resources":        {layer: 18},
		"test/security/walls":            {only: []string{"client", "test/harness"}},
		// What a test may know of the built program: its command line and HTTP.
		"test/harness": {only: []string{}},
	}
}

// pkg is what `go list` says about a package.
type pkg struct {
	ImportPath string
	Dir        string
	Name       string
	Imports    []string
	GoFiles    []string
}

func (p pkg) path() string { return strings.TrimPrefix(p.ImportPath, module) }

// generated reports whether a path of this module is generated code.
func generated(path string) bool { return strings.HasPrefix(path, "api/gen/") }

// root returns the repository's directory.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// command runs the go command in the root and returns what it prints.
func command(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root(t)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// packages returns every package, with what it imports under any tag.
func packages(t *testing.T) []pkg {
	t.Helper()
	byPath := map[string]pkg{}
	for _, tags := range []string{"", "root"} {
		dec := json.NewDecoder(strings.NewReader(command(t, "list", "-tags="+tags, "-json=ImportPath,Dir,Name,Imports,GoFiles", module+"...")))
		for {
			var p pkg
			if err := dec.Decode(&p); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			p.Imports = append(p.Imports, byPath[p.ImportPath].Imports...)
			slices.Sort(p.Imports)
			p.Imports = slices.Compact(p.Imports)
			byPath[p.ImportPath] = p
		}
	}
	return slices.SortedFunc(maps.Values(byPath), func(a, b pkg) int { return strings.Compare(a.ImportPath, b.ImportPath) })
}

// matches reports whether a path is in a list of paths.
func matches(path string, list []string) bool {
	return slices.ContainsFunc(list, func(want string) bool {
		if prefix, ok := strings.CutSuffix(want, "…"); ok {
			return strings.HasPrefix(path, prefix)
		}
		return path == want
	})
}

// complaints returns what is wrong with an import, and with a package that has
// no place.
func complaints(where map[string]place, from string, imports []string) []string {
	if generated(from) {
		for _, to := range imports {
			if to, ours := strings.CutPrefix(to, module); ours && !generated(to) {
				return []string{fmt.Sprintf("%s: generated code imports %s", from, to)}
			}
		}
		return nil
	}
	here, known := where[from]
	if !known {
		return []string{from + ": a new package: give it a place in internal/archtest and in ARCHITECTURE.md"}
	}
	var bad []string
	for _, to := range imports {
		if !matches(from, []string{"internal/store", "internal/store/…"}) && to == "database/sql" {
			bad = append(bad, from+" imports database/sql: only internal/store knows SQL")
		}
		to, ours := strings.CutPrefix(to, module)
		if !ours {
			continue
		}
		there := where[to] // if it is unknown, that is said once, about itself
		switch {
		case here.only != nil:
			if !matches(to, here.only) {
				bad = append(bad, fmt.Sprintf("%s imports %s: it may import only %q", from, to, here.only))
			}
		case generated(to):
		case there.only != nil && there.by == nil && to != "client" && to != "client/agent" && to != "client/settings" && to != "client/task":
			bad = append(bad, fmt.Sprintf("%s imports %s, which nobody may", from, to))
		case there.only == nil && there.layer >= here.layer:
			bad = append(bad, fmt.Sprintf("%s (layer %d) imports %s (layer %d): only lower layers", from, here.layer, to, there.layer))
		}
		if there.by != nil && !matches(from, there.by) {
			bad = append(bad, fmt.Sprintf("%s imports %s: only %q may", from, to, there.by))
		}
	}
	return bad
}

func TestLayers(t *testing.T) {
	where := places()
	seen := map[string]bool{}
	for _, p := range packages(t) {
		seen[p.path()] = true
		for _, complaint := range complaints(where, p.path(), p.Imports) {
			t.Error(complaint)
		}
	}
	for path := range where {
		if !seen[path] {
			t.Errorf("%s has a place and does not exist", path)
		}
	}
}

// TestMap keeps ARCHITECTURE.md true: it names every package of the table but
// test code and mains.
func TestMap(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for path := range places() {
		if !strings.HasPrefix(path, "internal/") && path != "client" || strings.HasSuffix(path, "/pack") || strings.HasSuffix(path, "test") && path != "internal/archtest" && path != "internal/driver/drivertest" {
			continue
		}
		if !strings.Contains(string(text), "`"+path+"`") {
			t.Errorf("ARCHITECTURE.md does not name `%s`", path)
		}
	}
}

// TestComplaints shows that each rule bites.
func TestComplaints(t *testing.T) {
	where := map[string]place{
		"low":    {layer: 1},
		"high":   {layer: 2},
		"peer":   {layer: 2},
		"island": {only: []string{"api/gen/…", "low"}, by: []string{"cmd/…"}},
		"club":   {layer: 1, by: []string{"high"}},
		"cmd/x":  {only: []string{"island"}},
	}
	for _, tt := range []struct {
		from, to string
		ok       bool
	}{
		{"high", "low", true},
		{"low", "high", false},
		{"peer", "high", false},
		{"low", "low", false},
		{"high", "club", true},
		{"peer", "club", false},
		{"high", "island", false},
		{"cmd/x", "island", true},
		{"cmd/x", "low", false},
		{"island", "low", true},
		{"island", "high", false},
		{"island", "api/gen/v1", true},
		{"high", "api/gen/v1", true},
		{"api/gen/v1", "low", false},
		{"api/gen/v1", "api/gen/v2", true},
		{"stranger", "low", false},
	} {
		got := complaints(where, tt.from, []string{"fmt", module + tt.to})
		if (len(got) == 0) != tt.ok {
			t.Errorf("%s imports %s: %q, want ok = %v", tt.from, tt.to, got, tt.ok)
		}
	}
	if got := complaints(where, "high", []string{"database/sql"}); len(got) != 1 {
		t.Errorf("SQL outside the store: %q", got)
	}
}
