-- +goose Up

-- The key that signs the links to a sandbox's ports, sealed; '' while it has none.
ALTER TABLE sandboxes ADD COLUMN link_key TEXT NOT NULL DEFAULT '';
