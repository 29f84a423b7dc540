package oci

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/cubbyhq/cubby/internal/driver/oci/cgroup"
	"github.com/cubbyhq/cubby/internal/driver/oci/pidfd"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Runs reports whether any sandbox runs whose cgroup is below parent.
func Runs(parent string) (bool, error) {
	h := cgroup.Open(parent)
	uids, err := h.List()
	if err != nil {
		return false, err
	}
	for _, uid := range uids {
		if pids, err := h.Group(uid).Procs(); err != nil || len(pids) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// RunsElsewhere names a sandbox whose run, as it is noted in a state directory, goes on
// in another cgroup than one below parent: the directory is a copy. "" where none does.
func RunsElsewhere(stateDir, parent string) (sandbox.UID, error) {
	hostID, err := os.ReadFile(bootID)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(stateDir)
	if err != nil {
		return "", err
	}
	ours, all := cgroup.Open(parent), cgroup.Open("")
	for _, e := range entries {
		uid, err := sandbox.ParseUID(e.Name())
		if err != nil {
			continue
		}
		rec, found, err := box{uid: uid, dir: filepath.Join(stateDir, e.Name())}.record()
		if err != nil || !found || rec.PID == 0 || rec.HostID != strings.TrimSpace(string(hostID)) {
			continue // whoever is asked for the sandbox says what is wrong with it
		}
		if p, err := pidfd.Open(rec.PID, rec.StartTime); err == nil {
			// One that ends is in no sandbox's any more.
			elsewhere := all.Group(uid).Contains(rec.PID) && !ours.Group(uid).Contains(rec.PID)
			p.Close()
			if elsewhere {
				return uid, nil
			}
		}
	}
	return "", nil
}

const bootID = "/proc/sys/kernel/random/boot_id"
