//go:build root

package durability_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the daemon's own driver, to read beside it

	"github.com/cubbyhq/cubby/test/harness"
)

// known is what the database has, by uid.
type known struct {
	rows, live, running, sleeping, disks, snapshots map[string]bool
}

func (d *daemon) known() known {
	d.t.Helper()
	var db *sql.DB
	if d.database != "" {
		config, err := pgx.ParseConfig(d.database)
		if err != nil {
			d.t.Fatal(err)
		}
		db = stdlib.OpenDB(*config)
	} else {
		var err error
		if db, err = sql.Open("sqlite", "file:"+d.dir+"/cubby.db?_pragma=busy_timeout(30000)&_pragma=query_only(1)"); err != nil {
			d.t.Fatal(err)
		}
	}
	defer db.Close()
	k := known{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	rows, err := db.QueryContext(d.t.Context(), `SELECT uid, disk_uid, state FROM sandboxes UNION ALL SELECT '', disk_uid, 'kept' FROM kept_disks
		UNION ALL SELECT uid, uid, 'snapshot' FROM snapshots WHERE state = 'ready'`)
	if err != nil {
		d.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var uid, disk, state string
		if err := rows.Scan(&uid, &disk, &state); err != nil {
			d.t.Fatal(err)
		}
		switch state {
		case "kept":
			k.disks[disk] = true
		case "snapshot":
			k.snapshots[uid], k.disks[disk] = true, true
		default:
			k.rows[uid] = true
			if state != "failed" && state != "destroyed" {
				k.live[uid], k.disks[disk] = true, true
				k.running[uid], k.sleeping[uid] = state == running, state == sleeping
			}
		}
	}
	if err := rows.Err(); err != nil {
		d.t.Fatal(err)
	}
	return k
}

// trace is something on the host that belongs to a sandbox of this daemon.
type trace struct{ what, uid string }

var uidPattern = regexp.MustCompile(`[0-9a-hjkmnp-tv-z]{26}`)

// traces lists all that a daemon with this data directory has on the host:
// mounts, loop devices, cgroups, processes and directories.
func (d *daemon) traces() []trace {
	var all []trace
	add := func(what, path string) {
		// Ready disks stay when a daemon leaves.
		if harness.OwnMount(path) && (d.program.Running() || strings.Contains(path, "/disks/")) {
			return
		}
		path = strings.TrimPrefix(path, d.dir+"/")
		all = append(all, trace{what + " " + path, uidPattern.FindString(path)})
	}
	for _, m := range harness.MountsBelow(d.dir) {
		add("mount", m)
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is right
	for _, name := range loops {
		file, err := os.ReadFile(name)
		if err == nil && strings.HasPrefix(string(file), d.dir+"/") {
			add("loop device", strings.TrimSpace(string(file)))
		}
	}
	var is struct{ Cgroups string }
	identity, err := os.ReadFile(filepath.Join(d.dir, "instance.json"))
	if err == nil {
		err = json.Unmarshal(identity, &is)
	}
	if err != nil || is.Cgroups == "" {
		d.t.Fatalf("the cgroup of the sandboxes is not known: %s, %v", identity, err)
	}
	cgroup := is.Cgroups
	for _, pattern := range []string{"/sys/fs/cgroup/" + cgroup + "/*", "/sys/fs/cgroup/*/" + cgroup + "/*"} {
		dirs, _ := filepath.Glob(pattern) // as above
		for _, dir := range dirs {
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				add("cgroup", dir)
			}
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		if p == fmt.Sprint("/proc/", d.program.PID()) || p == fmt.Sprint("/proc/", os.Getpid()) {
			continue
		}
		cmdline, _ := os.ReadFile(p + "/cmdline") // it may have ended
		groups, _ := os.ReadFile(p + "/cgroup")
		line := strings.ReplaceAll(string(cmdline), "\x00", " ")
		switch {
		case strings.Contains(string(groups), cgroup+"/"):
			_, rest, _ := strings.Cut(string(groups), cgroup+"/")
			// Its arguments may name a sentry that it was made for.
			add("process", fmt.Sprintf("%s of %s: %.100q", p, strings.SplitN(rest, "\n", 2)[0], line))
		case strings.Contains(line, d.dir+"/"):
			_, rest, _ := strings.Cut(line, d.dir+"/")
			add("process", fmt.Sprintf("%s %.200q", p, rest))
		}
	}
	for _, dir := range []string{"disks", "journals", "run/oci", "run/oci/snapshots"} {
		entries, _ := os.ReadDir(filepath.Join(d.dir, dir)) // none is none
		for _, e := range entries {
			if e.IsDir() && uidPattern.MatchString(e.Name()) {
				add("directory", filepath.Join(d.dir, dir, e.Name()))
			}
		}
	}
	memories, _ := filepath.Glob(d.dir + "/run/oci/*/memory*") // as above
	for _, dir := range memories {
		add("memory", dir)
	}
	return all
}

func (k known) owns(tr trace) bool {
	what, path, _ := strings.Cut(tr.what, " ")
	if what == "loop" {
		path = strings.TrimPrefix(path, "device ")
	}
	switch {
	case tr.uid == "":
		return false
	case strings.HasPrefix(path, "disks/"):
		return k.disks[tr.uid]
	case strings.HasPrefix(path, "journals/"):
		return k.rows[tr.uid]
	case strings.HasPrefix(path, "run/oci/snapshots/"):
		return k.snapshots[tr.uid]
	case what == "memory":
		return k.sleeping[tr.uid]
	case what == "directory":
		return k.live[tr.uid]
	}
	return k.running[tr.uid] // mounts of a run, cgroups, processes
}

// nobodys are the traces of what no row wants, and the uids that rows have.
func (d *daemon) nobodys() ([]trace, known) {
	d.t.Helper()
	// First what is there: whatever is made meanwhile has its row before.
	left := d.traces()
	k := d.known()
	return slices.DeleteFunc(left, k.owns), k
}

// sentries is how many kernels of gVisor a daemon keeps started, by default.
const sentries = 1

// checkOrphans: all that is on the host belongs to a row that wants it, or is of the
// sandboxes and the sentry that the daemon keeps ready, of which there are no more than
// there shall be and none of before. The daemon may need a moment for what it removes beside its
// work.
func (d *daemon) checkOrphans(ready int, before []trace) {
	d.t.Helper()
	var left []trace
	if !d.within(func() bool {
		var k known
		left, k = d.nobodys()
		kept := map[string]bool{}
		for _, tr := range left {
			if tr.uid == "" || k.rows[tr.uid] || k.snapshots[tr.uid] || slices.ContainsFunc(before, func(b trace) bool { return b.uid == tr.uid }) {
				return false
			}
			kept[tr.uid] = true
		}
		return len(kept) <= ready
	}) {
		for _, tr := range left {
			d.t.Errorf("orphan: %s", tr.what)
		}
	}
}
