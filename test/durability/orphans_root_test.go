//go:build root

package durability_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
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
	rows, live, running, disks map[string]bool
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
	k := known{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	rows, err := db.QueryContext(d.t.Context(), `SELECT uid, disk_uid, state FROM sandboxes UNION ALL SELECT '', disk_uid, 'kept' FROM kept_disks`)
	if err != nil {
		d.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var uid, disk, state string
		if err := rows.Scan(&uid, &disk, &state); err != nil {
			d.t.Fatal(err)
		}
		k.rows[uid] = true
		if state != "failed" && state != "destroyed" {
			k.live[uid], k.disks[disk] = true, true
			k.running[uid] = state == "running"
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
		if harness.OwnMount(path) {
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
	sum := sha256.Sum256([]byte(d.dir))
	cgroup := "cubby-" + hex.EncodeToString(sum[:4])
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
			add("process", fmt.Sprintf("%s %.100q of %s", p, line, strings.SplitN(rest, "\n", 2)[0]))
		case strings.Contains(line, d.dir+"/"):
			_, rest, _ := strings.Cut(line, d.dir+"/")
			add("process", fmt.Sprintf("%s %.200q", p, rest))
		}
	}
	for _, dir := range []string{"disks", "journals", "run/oci"} {
		entries, _ := os.ReadDir(filepath.Join(d.dir, dir)) // none is none
		for _, e := range entries {
			if e.IsDir() && uidPattern.MatchString(e.Name()) {
				add("directory", filepath.Join(d.dir, dir, e.Name()))
			}
		}
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
	case what == "directory":
		return k.live[tr.uid]
	}
	return k.running[tr.uid] // mounts of a run, cgroups, processes
}

// checkOrphans: all that is on the host belongs to a row that wants it. The
// daemon may need a moment for what it removes beside its work.
func (d *daemon) checkOrphans() {
	d.t.Helper()
	var left []trace
	if !d.within(func() bool {
		// First what is there: whatever is made meanwhile has its row before.
		left = d.traces()
		k := d.known()
		left = slices.DeleteFunc(left, k.owns)
		return len(left) == 0
	}) {
		for _, tr := range left {
			d.t.Errorf("orphan: %s", tr.what)
		}
	}
}
