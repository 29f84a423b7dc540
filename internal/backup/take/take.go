// Package take makes a backup of a data directory, also while its sandboxes run. It
// knows what belongs into one and in which order it is taken: the database first, so
// that all that its rows speak of is on the disks that are copied after it. Each disk is
// that of one instant, as a power cut at that moment would leave it. It never holds a
// sandbox or the writers of its disk while the reader of the backup takes his time.
package take

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/backup"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

// What can be left out.
const (
	Images   = "images"   // they can be built and pulled again
	Memory   = "memory"   // of sleepers and snapshots; large, and of use for hosts with the same processor only
	Database = "database" // where a server of PostgreSQL has it
)

// Dirs is where the parts of a data directory are.
type Dirs struct {
	Data  string
	State string // of the driver, below Data
	// Images may be elsewhere. Then they are no part of the data directory, and are
	// left out.
	Images string
}

// Config is what a backup is taken of.
type Config struct {
	Dirs   Dirs
	Store  *store.Store
	Server bool // which has the database
	// Open opens a copy of the database.
	Open    func(ctx context.Context, path string) (*store.Store, error)
	Version string
	Now     func() time.Time
	// Keep copies a disk with its snapshots until done is called.
	Keep func(ctx context.Context, uid sandbox.UID) (dir string, done func(), err error)
	// Hold keeps everybody else from acting on a sandbox until release.
	Hold func(ctx context.Context, id string) (b sandbox.Sandbox, release func(), err error)
}

// Taker takes backups, one at a time.
type Taker struct {
	cfg Config
	one sync.Mutex
}

// New returns a taker and removes what one that was killed left.
func New(cfg Config) (*Taker, error) {
	t := &Taker{cfg: cfg}
	left, err := filepath.Glob(filepath.Join(t.stages(), stagePrefix+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return t, err
}

// Alone is a taker for a data directory in which nobody acts, as no daemon runs.
func (t *Taker) Alone() *Taker {
	cfg := t.cfg
	cfg.Hold = nil
	return &Taker{cfg: cfg}
}

// stages is where copies are until they are in the backup: on the disk that has what is
// copied.
func (t *Taker) stages() string { return filepath.Join(t.cfg.Dirs.Data, "run") }

const stagePrefix = "backup-"

// maxRounds bounds how often the rows are read anew because disks went away before they
// were copied.
const maxRounds = 10

// Backup writes a backup without what is named. Nothing is written before it is known
// that it can begin.
func (t *Taker) Backup(ctx context.Context, to io.Writer, without []string) (err error) {
	for _, w := range without {
		if !slices.Contains([]string{Images, Memory, Database}, w) {
			return errs.E(errs.Invalid, "without: %q is nothing that can be left out", w).Hint("images, memory or database")
		}
	}
	switch leaves := slices.Contains(without, Database); {
	case t.cfg.Server && !leaves:
		return errs.E(errs.Unsupported, "the database is on a server of PostgreSQL, and cannot be in the backup").
			Hint("stop the daemon, back the database up with pg_dump, and leave it out here: --without database")
	case !t.cfg.Server && leaves:
		return errs.E(errs.Invalid, "without its database a data directory is nothing")
	}
	if !t.one.TryLock() {
		return errs.E(errs.Conflict, "another backup is just being made").Hint("wait for its end").RetryAfter(10 * time.Second)
	}
	defer t.one.Unlock()
	if !below(t.cfg.Dirs.Data, t.cfg.Dirs.Images) && !slices.Contains(without, Images) {
		without = append(slices.Clone(without), Images)
	}
	stage, err := os.MkdirTemp(t.stages(), stagePrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()
	b := &run{t: t, stage: stage, without: without, has: make(map[sandbox.UID]bool)}
	wanted, err := b.rows(ctx)
	if err != nil {
		return err
	}
	b.w, err = backup.NewWriter(to, backup.Header{CreatedAt: t.cfg.Now(), Version: t.cfg.Version, Without: without})
	if err != nil {
		return err
	}
	for round := 1; ; round++ {
		gone, err := b.disks(ctx, wanted)
		if err != nil {
			return err
		}
		if !gone {
			break
		}
		// The rows of before speak of what is in no backup any more.
		if round == maxRounds {
			return errs.E(errs.Unavailable, "sandboxes come and go faster than they can be copied").Hint("try again when there is less to do")
		}
		if wanted, err = b.rows(ctx); err != nil {
			return err
		}
	}
	if err := b.rest(); err != nil {
		return err
	}
	return b.w.Close()
}

func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// run is one backup.
type run struct {
	t       *Taker
	w       *backup.Writer
	stage   string
	without []string
	has     map[sandbox.UID]bool // disks that are in it
}

func (b *run) leavesOut(what string) bool { return slices.Contains(b.without, what) }

// database is where the copy of the database is until it is in the backup.
func (b *run) database() string { return filepath.Join(b.stage, "cubby.db") }

// wants is what the rows of one moment speak of.
type wants struct {
	disk   sandbox.UID
	owner  *sandbox.Sandbox // that has it for itself, and the driver's notes; nil: none
	memory bool             // of a snapshot
}

// rows copies the database, in the place of an earlier copy, and returns what its rows
// want: nothing that they do not know is needed.
func (b *run) rows(ctx context.Context) (all []wants, err error) {
	s := b.t.cfg.Store
	if b.leavesOut(Database) {
		return wantsOf(ctx, s)
	}
	if err := os.Remove(b.database()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := s.Copy(ctx, b.database()); err != nil {
		return nil, err
	}
	taken, err := b.t.cfg.Open(ctx, b.database())
	if err != nil {
		return nil, err
	}
	all, err = wantsOf(ctx, taken)
	return all, errors.Join(err, taken.Close())
}

// wantsOf are what the rows of a database want.
func wantsOf(ctx context.Context, s *store.Store) (all []wants, err error) {
	q := store.Query{States: []sandbox.State{sandbox.Running, sandbox.Sleeping, sandbox.Stopped}, Limit: 1000}
	for more := true; more; more = q.After != "" {
		var page []sandbox.Sandbox
		if page, q.After, err = s.Sandboxes(ctx, q); err != nil {
			return nil, err
		}
		for _, box := range page {
			all = append(all, wants{disk: box.DiskUID, owner: &box})
		}
	}
	kept, err := s.KeptDisks(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range kept {
		all = append(all, wants{disk: d.DiskUID})
	}
	for after := ""; ; {
		page, err := s.Tenants(ctx, after, 1000)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		for _, t := range page {
			if t.Ready {
				all = append(all, wants{disk: t.DiskUID})
			}
		}
		after = page[len(page)-1].Name
	}
	for before := sandbox.UID(""); ; {
		page, _, err := s.Snapshots(ctx, store.SnapshotQuery{Before: before, Limit: 1000})
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return all, nil
		}
		for _, n := range page {
			all = append(all, wants{disk: n.UID, memory: n.Memory})
		}
		before = page[len(page)-1].UID
	}
}

// disks adds what is wanted and not there yet. It reports whether some of that is gone.
func (b *run) disks(ctx context.Context, wanted []wants) (gone bool, err error) {
	for _, w := range wanted {
		if b.has[w.disk] {
			continue
		}
		switch err := b.patiently(ctx, w); {
		case errors.Is(err, errs.NotFound):
			gone = true
		case err != nil:
			return false, fmt.Errorf("disk %s: %w", w.disk, err)
		default:
			b.has[w.disk] = true
		}
	}
	return gone, nil
}

// maxTries and tryAgain are for a disk that somebody else holds for a moment.
const (
	maxTries = 10
	tryAgain = time.Second
)

// patiently is one, again while the disk is not available.
func (b *run) patiently(ctx context.Context, w wants) (err error) {
	for range maxTries {
		if err = b.one(ctx, w); !errors.Is(err, errBusy) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(tryAgain):
		}
	}
	return err
}

// errBusy is of a disk of which nothing was added.
var errBusy = errors.New("the disk is not available")

// one adds a disk, and what the driver keeps beside it of the same moment.
func (b *run) one(ctx context.Context, w wants) error {
	notes := filepath.Join(b.stage, "notes")
	disk, done, err := b.copied(ctx, w, notes)
	if errors.Is(err, errs.Unavailable) {
		err = errors.Join(err, errBusy)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(notes))
	}
	defer done()
	if err := b.w.Tree("disks/"+string(w.disk), disk, nil); err != nil {
		return err
	}
	if err := b.w.Tree(b.nameOf(w), notes, nil); err != nil {
		return err
	}
	return os.RemoveAll(notes)
}

// nameOf is where the driver's notes lie, in the data directory.
func (b *run) nameOf(w wants) string {
	state, _ := filepath.Rel(b.t.cfg.Dirs.Data, b.t.cfg.Dirs.State) // it is below
	if w.owner != nil {
		return filepath.Join(state, string(w.owner.UID))
	}
	return filepath.Join(state, "snapshots", string(w.disk))
}

// copied copies a disk, and the notes into a directory, while nobody acts on the
// sandbox. A disk whose sandbox is another one now is gone.
func (b *run) copied(ctx context.Context, w wants, notes string) (disk string, done func(), err error) {
	if w.owner != nil && b.t.cfg.Hold != nil {
		now, release, err := b.t.cfg.Hold(ctx, string(w.owner.ID))
		if err != nil {
			return "", nil, err
		}
		defer release()
		if now.UID != w.owner.UID || now.DiskUID != w.disk {
			return "", nil, errs.E(errs.NotFound, "the sandbox is gone")
		}
	}
	disk, done, err = b.t.cfg.Keep(ctx, w.disk)
	if err != nil {
		return "", nil, err
	}
	from := filepath.Join(b.t.cfg.Dirs.Data, b.nameOf(w))
	_, none := os.Lstat(from)
	switch {
	case w.owner != nil && errors.Is(none, fs.ErrNotExist): // it never ran
	case w.owner != nil:
		err = linkTree(notes, from, b.lasting)
	case w.memory && !b.leavesOut(Memory):
		const kept = "memory"
		err = linkTree(notes, from, func(name string) bool { return name == kept })
		if _, gone := os.Lstat(filepath.Join(notes, kept)); err == nil && gone != nil {
			err = errs.E(errs.NotFound, "the snapshot is just being removed").Because(gone)
		}
	}
	if err != nil {
		done()
		return "", nil, err
	}
	return disk, done, nil
}

// lasting says which of the driver's notes of a sandbox outlast a run.
func (b *run) lasting(name string) bool {
	switch name {
	case "note.json", "saved":
		return true
	case "memory":
		return !b.leavesOut(Memory)
	}
	return false
}

// linkTree makes a directory with the files of another, which are replaced and never
// changed. Wanted says which of the names at the top are meant.
func linkTree(to, from string, wanted func(name string) bool) error {
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if top, _, _ := strings.Cut(rel, "/"); rel != "." && !wanted(top) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		return os.Link(path, filepath.Join(to, rel))
	})
	if errors.Is(err, fs.ErrNotExist) {
		return errs.E(errs.NotFound, "what is kept of the sandbox is gone").Because(err)
	}
	return err
}

// rest adds what is neither disk nor note.
func (b *run) rest() error {
	data := b.t.cfg.Dirs.Data
	for _, name := range []string{"journals", "agent", "threads", "runtimes", "seal.key", "database-id"} {
		if err := b.w.Tree(name, filepath.Join(data, name), nil); err != nil {
			return err
		}
	}
	if !b.leavesOut(Images) {
		hidden := func(rel string) bool { return strings.HasPrefix(rel, ".") }
		if err := b.w.Tree("images", b.t.cfg.Dirs.Images, hidden); err != nil {
			return err
		}
	}
	if b.leavesOut(Database) {
		return nil
	}
	return b.w.File("cubby.db", b.database())
}
