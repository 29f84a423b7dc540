package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	rootfsName = "rootfs"
	recordName = "image.json"
	namesName  = "names.json"
	pinsName   = "pins"
	cacheName  = ".cache"
	tmpPrefix  = ".tmp-"
)

// record is image.json.
type record struct {
	Version   int       `json:"version"`
	Digest    string    `json:"digest"`
	Size      int64     `json:"size"`
	Entries   int       `json:"entries"`
	CreatedAt time.Time `json:"created_at"`
	Source    string    `json:"source"`
	Env       []string  `json:"env,omitempty"`
	// Inputs is the digest of everything that went into a build, Recipe of the
	// recipe alone.
	Inputs string `json:"inputs,omitempty"`
	Recipe string `json:"recipe,omitempty"`
	// Definition is of an image that was built from another one.
	Definition *Definition `json:"definition,omitempty"`
	// Targets is the digest of the mount targets that it has.
	Targets string `json:"targets"`
	// Stamp is over the whole tree, TopStamp over the directories in Top.
	Stamp    string   `json:"stamp"`
	Top      []string `json:"top"`
	TopStamp string   `json:"top_stamp"`
}

const recordVersion = 1

func readRecord(dir string) (record, error) {
	var r record
	b, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s: %w", recordName, err)
	}
	if r.Version != recordVersion {
		return r, fmt.Errorf("%s: version %d is not known", recordName, r.Version)
	}
	return r, nil
}

func (r record) write(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, recordName), append(b, '\n'), 0o644)
}

// names is names.json.
type names struct {
	Version int               `json:"version"`
	Names   map[string]string `json:"names"`
}

// readNames returns the names. A missing file is an empty list; an unreadable
// one is an error, never an empty list.
func (s *Store) readNames() (map[string]string, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, namesName))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read image names: %w", err)
	}
	var n names
	if err := json.Unmarshal(b, &n); err != nil || n.Version != recordVersion {
		return nil, errs.E(errs.Unavailable, "the list of image names is damaged").
			Hint("remove names.json from the image directory and build, pull or import the images again").Because(err)
	}
	if n.Names == nil {
		n.Names = map[string]string{}
	}
	return n.Names, nil
}

// writeNames replaces the names. The store's lock is held.
func (s *Store) writeNames(list map[string]string) error {
	b, err := json.MarshalIndent(names{Version: recordVersion, Names: list}, "", "  ")
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(s.dir, namesName), append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write image names: %w", err)
	}
	return nil
}

// digests lists the image directories.
func (s *Store) digests() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("read the image directory: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && isDigest(e.Name()) {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}
