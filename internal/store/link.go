package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// linkPlace is what the key of a sandbox's links is sealed for.
func linkPlace(uid sandbox.UID) string { return string(uid) + " links" }

// LinkKey returns the key that signs the links of a sandbox. One that has none
// gets the given one, unless that is nil: then there is none.
func (s *Store) LinkKey(ctx context.Context, uid sandbox.UID, otherwise []byte) ([]byte, error) {
	key, err := s.seal.scanLinkKey(uid, s.reads.Row(ctx, `SELECT link_key FROM sandboxes WHERE uid = $1`, uid))
	if err != nil || len(key) > 0 || otherwise == nil {
		return key, s.fault(err)
	}
	err = s.update(ctx, durable, func(t *tx) (err error) {
		if key, err = t.seal.scanLinkKey(uid, t.row(`SELECT link_key FROM sandboxes WHERE uid = $1`, uid)); err != nil || len(key) > 0 {
			return err
		}
		key = otherwise
		_, err = t.exec(`UPDATE sandboxes SET link_key = $1 WHERE uid = $2`, t.seal.Seal(linkPlace(uid), key), uid)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the key of the links of sandbox %s: %w", uid, err)
	}
	return key, nil
}

// DropLinkKey forgets the key: nothing that it signed holds any more.
func (s *Store) DropLinkKey(ctx context.Context, uid sandbox.UID) error {
	return s.update(ctx, durable, func(t *tx) error {
		_, err := t.exec(`UPDATE sandboxes SET link_key = '' WHERE uid = $1`, uid)
		return err
	})
}

func (k sealer) scanLinkKey(uid sandbox.UID, r engine.Row) ([]byte, error) {
	var sealed string
	err := r.Scan(&sealed)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, noSuchSandbox()
	case err != nil || sealed == "":
		return nil, err
	}
	return k.Open(linkPlace(uid), sealed)
}
