package image

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
)

// lookedName is, in the directory of an image, the file that tells who comes
// later when all files of the image were looked at.
const lookedName = "looked.json"

// looked is that file.
type looked struct {
	Stamp string    `json:"stamp"` // that was found
	Boot  string    `json:"boot"`  // of the host: a crash can take what was written before it
	At    time.Time `json:"at"`    // when the look began
}

// LooksCount makes a look at every file of an image count for d: a Store of
// another process that does so too takes the image for whole so long, if the host
// has not booted since. Call it before anything else.
func (s *Store) LooksCount(d time.Duration) { s.looksCount = d }

// wasLooked reports whether somebody's look at an image counts.
func (s *Store) wasLooked(r record) bool {
	if s.looksCount <= 0 {
		return false
	}
	var l looked
	b, err := os.ReadFile(filepath.Join(s.dir, r.Digest, lookedName))
	if err != nil || json.Unmarshal(b, &l) != nil {
		return false
	}
	age := s.now().Sub(l.At)
	return l.Stamp == r.Stamp && l.Boot != "" && l.Boot == boot() && age >= 0 && age < s.looksCount
}

// tellLooked leaves word of a look that found an image whole. Where it cannot,
// the next one looks again.
func (s *Store) tellLooked(r record, began time.Time) {
	if s.looksCount <= 0 {
		return
	}
	b, err := json.Marshal(looked{Stamp: r.Stamp, Boot: boot(), At: began})
	if err == nil {
		err = renameio.WriteFile(filepath.Join(s.dir, r.Digest, lookedName), b, 0o600)
	}
	if err != nil {
		s.log.Debug("that an image is whole is not kept", "image", r.Digest, "err", err)
	}
}

// boot names this run of the host's kernel, "" where it does not say.
func boot() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}
