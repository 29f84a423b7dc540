package image

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// buildDebian makes the Debian part of a recipe, which gets a name unless that
// is "". It needs root and mmdebstrap. Packages are kept, so that a later build
// fetches only what is newer and works without a network at all. When recipe
// and packages are those of an image that exists, that one is the result.
func (s *Store) buildDebian(ctx context.Context, r *Recipe, a about, p Progress) (Image, error) {
	b := &build{store: s, recipe: r, about: a, progress: p, cache: filepath.Join(s.dir, cacheName, r.name)}
	if err := b.check(); err != nil {
		return Image{}, err
	}
	if err := os.MkdirAll(b.debs(), 0o755); err != nil {
		return Image{}, err
	}
	unlock, err := lock(ctx, filepath.Join(b.cache, "lock"))
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	img, err := b.run(ctx)
	return img, diskError(err)
}

// buildSource and the recipe's name are the source of an image that was built.
const buildSource = "build "

// outdated reports whether an image was built by another version of a recipe
// than the built-in one.
func (s *Store) outdated(img Image) bool {
	name, built := strings.CutPrefix(img.Source, buildSource)
	if !built || !slices.Contains(recipeNames(s.recipes), name) {
		return false
	}
	now, err := loadRecipe(s.recipes, name)
	return err == nil && now.key != img.recipe
}

// Outdated lists the names of the images that were built by another version of
// their recipe than the built-in one. They work; cubby image build renews them.
// It reads records only, not the images.
func (s *Store) Outdated() ([]string, error) {
	named, err := s.readNames()
	if err != nil {
		return nil, err
	}
	var out []string
	for name, digest := range named {
		r, err := readRecord(filepath.Join(s.dir, digest))
		if err == nil && s.outdated(Image{Source: r.Source, recipe: r.Recipe}) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// build is one build.
type build struct {
	store    *Store
	recipe   *Recipe
	about    about // of the image that it gives
	progress Progress
	cache    string // DIR/.cache/<recipe>
}

func (b *build) debs() string  { return filepath.Join(b.cache, "debs") }
func (b *build) lists() string { return filepath.Join(b.cache, "lists") }
func (b *build) log() string   { return filepath.Join(b.cache, "build.log") }

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// check says what the host lacks.
func (b *build) check() error {
	if !b.store.chown {
		return errs.E(errs.Unsupported, "building an image needs root").Hint("run it with sudo")
	}
	_, err := exec.LookPath("mmdebstrap")
	if err == nil {
		_, err = os.Stat(keyring)
	}
	if err != nil {
		return errs.E(errs.Unsupported, "building an image needs mmdebstrap and Debian's keys").
			Hint("apt-get install mmdebstrap debian-archive-keyring").Because(err)
	}
	return b.store.room()
}

func (b *build) run(ctx context.Context) (Image, error) {
	b.progress.report(Step{Stage: "checking"})
	releases, err := b.fetchReleases(ctx)
	offline := err != nil
	if ctx.Err() != nil {
		return Image{}, ctx.Err()
	}
	if offline {
		if releases, err = b.cachedReleases(); err != nil {
			return Image{}, errs.E(errs.Unavailable, "Debian's package archive does not answer, and there is no cache of an earlier build").
				Hint("check the network; the build fetches from the hosts in %s", strings.Join(b.recipe.Sources, "; ")).Because(err)
		}
		b.store.log.Info("the package archive does not answer: building from the cache")
	}
	if img, ok := b.store.existing(ctx, b.about.name, b.inputs(releases)); ok {
		return img, nil
	}

	g, err := b.store.newStage(ctx)
	if err != nil {
		return Image{}, err
	}
	defer g.discard()
	if err := b.bootstrap(ctx, g, offline); err != nil {
		return Image{}, err
	}
	// What apt has really used may be newer than what was seen before.
	used, err := b.cachedReleases()
	if err != nil {
		return Image{}, err
	}
	a := b.about
	a.env, a.inputs = b.recipe.environment(), b.inputs(used)
	return g.commit(ctx, a, b.progress)
}

// existing returns the image that these inputs have given before, and gives it
// the name unless that is "".
func (s *Store) existing(ctx context.Context, name, inputs string) (Image, bool) {
	release, err := s.lock(ctx)
	if err != nil {
		return Image{}, false
	}
	defer release()
	all, err := s.digests()
	if err != nil {
		return Image{}, false
	}
	for _, d := range all {
		r, err := readRecord(filepath.Join(s.dir, d))
		if err != nil || r.Inputs != inputs {
			continue
		}
		img := s.load(ctx, d)
		if img.Damaged || name != "" && s.setName(name, d) != nil {
			continue
		}
		img.Name = name
		return img, true
	}
	return Image{}, false
}

// inputs is the digest of all that decides what a build gives.
func (b *build) inputs(releases map[string][]byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "cubby build 1 %s %s %s\n", runtime.GOARCH, b.recipe.key, targetsKey())
	names := make([]string, 0, len(releases))
	for n := range releases {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		fmt.Fprintf(h, "%s %x\n", n, sha256.Sum256(releases[n]))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// fetchReleases gets the sources' signed release files, by the names that apt
// keeps them under.
func (b *build) fetchReleases(ctx context.Context) (map[string][]byte, error) {
	const limit = 4 << 20
	urls, err := b.recipe.releaseURLs()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out := map[string][]byte{}
	for _, u := range urls {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
		if err != nil {
			return nil, err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(io.LimitReader(res.Body, limit))
		res.Body.Close()
		if err != nil {
			return nil, err
		}
		if res.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("GET %s: %s", u, res.Status)
		}
		_, rest, _ := strings.Cut(u, "://")
		out[strings.ReplaceAll(rest, "/", "_")] = body
	}
	return out, nil
}

// cachedReleases reads the release files of the last build.
func (b *build) cachedReleases() (map[string][]byte, error) {
	urls, err := b.recipe.releaseURLs()
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, u := range urls {
		_, rest, _ := strings.Cut(u, "://")
		name := strings.ReplaceAll(rest, "/", "_")
		if out[name], err = os.ReadFile(filepath.Join(b.lists(), name)); err != nil {
			return nil, fmt.Errorf("read the package cache: %w", err)
		}
	}
	return out, nil
}

// The hooks run as root on the host, with the new root as $1. Packages are
// hard-linked in and out of the cache, so nothing is copied; where that does
// not work they are.
const (
	setupHook = `set -e; mkdir -p "$1/var/cache/apt/archives" "$1/var/lib/apt/lists"
cp -al "$CUBBY_CACHE/debs/." "$1/var/cache/apt/archives/" || cp -a "$CUBBY_CACHE/debs/." "$1/var/cache/apt/archives/"
if [ -d "$CUBBY_CACHE/lists" ]; then cp -a "$CUBBY_CACHE/lists/." "$1/var/lib/apt/lists/"; fi`

	customizeHook = `set -e; new="$CUBBY_CACHE/.new"; rm -rf "$new"; mkdir -p "$new/debs"
for d in $(chroot "$1" dpkg-query -W -f '${Package}_${Version}_${Architecture}.deb\n' | sed 's/:/%3a/g'); do
  if [ -f "$1/var/cache/apt/archives/$d" ]; then cp -l "$1/var/cache/apt/archives/$d" "$new/debs/" || cp -a "$1/var/cache/apt/archives/$d" "$new/debs/"; fi
done
cp -a "$1/var/lib/apt/lists" "$new/lists"; rm -rf "$new/lists/partial" "$new/lists/lock"
rm -rf "$CUBBY_CACHE/debs" "$CUBBY_CACHE/lists"; mv "$new/debs" "$new/lists" "$CUBBY_CACHE/"; rm -rf "$new"
cp -a --no-preserve=ownership "$CUBBY_RECIPE/files/." "$1/"
chroot "$1" /bin/sh -eu < "$CUBBY_RECIPE/setup.sh"`
)

// bootstrap runs mmdebstrap into the stage.
func (b *build) bootstrap(ctx context.Context, g *stage, offline bool) error {
	recipe := filepath.Join(g.dir, "recipe")
	if err := b.recipe.writeTo(recipe); err != nil {
		return err
	}
	sources := filepath.Join(g.dir, "sources.list")
	if err := os.WriteFile(sources, []byte(strings.Join(b.recipe.Sources, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	logFile, err := os.Create(b.log())
	if err != nil {
		return err
	}
	defer logFile.Close()

	cmd := exec.CommandContext(ctx, "mmdebstrap", b.arguments(g, sources, offline)...)
	cmd.Env = append(os.Environ(), "CUBBY_CACHE="+b.cache, "CUBBY_RECIPE="+recipe,
		"LC_ALL=C.UTF-8", "TMPDIR="+g.dir, "SOURCE_DATE_EPOCH=1", "DEBIAN_FRONTEND=noninteractive")
	cmd.Dir = g.dir
	// Its own process group: apt and dpkg end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	pr, pw := io.Pipe()
	cmd.Stdout, cmd.Stderr = pw, pw
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		b.watch(io.TeeReader(pr, logFile))
	}()
	// Pdeathsig is about the thread that starts it.
	runtime.LockOSThread()
	err = cmd.Run()
	runtime.UnlockOSThread()
	_ = pw.Close()
	<-watched
	if err == nil {
		return nil
	}
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(b.store.room(), errs.Exhausted) {
		return b.store.room()
	}
	return errs.E(errs.Unavailable, "mmdebstrap did not finish").
		Hint("its output is in %s", b.log()).Because(err)
}

func (b *build) arguments(g *stage, sources string, offline bool) []string {
	skip := "download/empty,essential/unlink"
	if offline {
		skip += ",update"
	}
	args := []string{
		"--verbose", "--mode=root", "--variant=apt", "--format=directory",
		"--keyring=" + keyring, "--skip=" + skip,
		"--include=" + strings.Join(b.recipe.Packages, ","),
		"--dpkgopt=force-unsafe-io", // the whole tree is synced at the end
		"--setup-hook=" + setupHook, "--customize-hook=" + customizeHook,
	}
	for _, x := range b.recipe.Exclude {
		args = append(args, "--dpkgopt=path-exclude="+x)
	}
	for _, x := range b.recipe.Include {
		args = append(args, "--dpkgopt=path-include="+x)
	}
	return append(args, b.recipe.Suite, g.rootfs(), sources)
}

var newlyInstalled = regexp.MustCompile(`(\d+) newly installed`)

// watch reads what mmdebstrap, apt and dpkg print, and reports it as progress.
func (b *build) watch(out io.Reader) {
	w := buildWatch{progress: b.progress}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		w.line(lines.Text())
	}
	_, _ = io.Copy(io.Discard, out) // a line that is too long must not stop mmdebstrap
}

// buildWatch counts packages. mmdebstrap installs in two rounds: the essential
// packages, then the others.
type buildWatch struct {
	progress Progress
	round    int64 // packages of the round
	total    int64 // packages of the rounds that have begun
	fetched  int64
	steps    int64 // packages unpacked and set up
}

func (w *buildWatch) line(line string) {
	switch m := newlyInstalled.FindStringSubmatch(line); {
	case m != nil:
		n, err := strconv.ParseInt(m[1], 10, 32)
		if err == nil && n != w.round { // apt may say it twice
			w.round = n
			w.total += n
		}
	case strings.HasPrefix(line, "Get:") && w.total > 0: // earlier ones are lists
		w.fetched++
		w.progress.report(Step{Stage: "downloading", Done: w.fetched, Items: true})
	case strings.HasPrefix(line, "Unpacking "), strings.HasPrefix(line, "Setting up "):
		w.steps++
		if w.total > firstRound {
			w.progress.report(Step{Stage: "installing", Done: min(w.steps/2, w.total), Total: w.total, Items: true})
		}
	}
}

// firstRound is more packages than are essential, and fewer than any recipe
// adds to them.
const firstRound = 120
