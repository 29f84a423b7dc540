package store

import (
	"context"
	"fmt"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// sealer reads and writes the columns that hold env values.
type sealer struct{ *seal.Key }

// specColumns renders a sandbox's spec; env and services are apart from it and
// sealed, "" is none.
func (k sealer) specColumns(b sandbox.Sandbox) (spec, env, declared string, err error) {
	declared, err = k.servicesColumn(string(b.UID), services{b.Spec.Services, b.Services})
	if err != nil {
		return "", "", "", err
	}
	values := b.Spec.Env
	b.Spec.Env, b.Spec.Services = nil, nil
	if spec, err = column.JSON(b.Spec); err != nil || len(values) == 0 {
		return spec, "", declared, err
	}
	text, err := column.JSON(values)
	return spec, k.Seal(string(b.UID), []byte(text)), declared, err
}

// services are the text of the column of that name.
type services struct {
	Declared []sandbox.Service               `json:"declared,omitempty"`
	States   map[string]sandbox.ServiceState `json:"states,omitempty"`
}

// servicesColumn renders services, sealed for a place; "" is none.
func (k sealer) servicesColumn(place string, s services) (string, error) {
	if len(s.Declared)+len(s.States) == 0 {
		return "", nil
	}
	text, err := column.JSON(s)
	if err != nil {
		return "", err
	}
	return k.Seal(place+" services", []byte(text)), nil
}

func (k sealer) openServices(place, sealed string) (s services, err error) {
	if sealed == "" {
		return s, nil
	}
	text, err := k.Open(place+" services", sealed)
	if err == nil {
		err = column.Read(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("the services of %s: %w", place, err)
	}
	return s, nil
}

// handlePlace is what a handle is sealed for.
func handlePlace(uid sandbox.UID) string { return string(uid) + " handle" }

// handleColumn renders a driver's handle: it repeats the env, so it is sealed
// too. None is NULL.
func (k sealer) handleColumn(uid sandbox.UID, handle []byte) any {
	if len(handle) == 0 {
		return nil
	}
	return []byte(k.Seal(handlePlace(uid), handle))
}

// openHandle reads what [sealer.handleColumn] made. An earlier version stored
// handles in the clear.
func (k sealer) openHandle(uid sandbox.UID, column []byte) ([]byte, error) {
	if !seal.Sealed(string(column)) {
		return column, nil
	}
	handle, err := k.Open(handlePlace(uid), string(column))
	if err != nil {
		return nil, fmt.Errorf("the handle of sandbox %s: %w", uid, err)
	}
	return handle, nil
}

// sealHandles seals what an earlier version stored in the clear.
func (s *Store) sealHandles(ctx context.Context) error {
	return s.update(ctx, durable, func(t *tx) error {
		type handle struct {
			uid  sandbox.UID
			text []byte
		}
		rows, err := t.rows(`SELECT uid, handle FROM sandboxes WHERE handle IS NOT NULL AND state <> 'destroyed'`)
		all, err := engine.Collect(rows, err, func(r engine.Row) (h handle, err error) { return h, r.Scan(&h.uid, &h.text) })
		if err != nil {
			return err
		}
		for _, h := range all {
			if seal.Sealed(string(h.text)) {
				continue
			}
			if _, err := t.exec(`UPDATE sandboxes SET handle = $1 WHERE uid = $2`, t.seal.handleColumn(h.uid, h.text), h.uid); err != nil {
				return err
			}
		}
		return nil
	})
}
