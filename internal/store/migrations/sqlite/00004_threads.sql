-- +goose Up

-- The thread is in the spec too; here it is to be searched for.
ALTER TABLE sandboxes ADD COLUMN thread TEXT NOT NULL DEFAULT '';
UPDATE sandboxes SET thread = COALESCE(json_extract(spec, '$.thread'), '');
CREATE INDEX sandboxes_by_thread ON sandboxes (tenant, thread, uid) WHERE thread <> '' AND state <> 'destroyed';

-- Paths of live sandboxes that others may read.
CREATE TABLE exports (
    box        TEXT    NOT NULL REFERENCES sandboxes (uid) ON DELETE CASCADE,
    path       TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    size       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (box, path)
);
