-- +goose Up

-- What was kept of sandboxes, which it outlives. env is sealed, as a sandbox's
-- is. A row that is not ready is of an act that was cut off: it goes when all is
-- gone that the snapshot had.
CREATE TABLE snapshots (
    uid          TEXT    NOT NULL PRIMARY KEY,
    name         TEXT    NOT NULL,
    tenant       TEXT    NOT NULL,
    source_id    TEXT    NOT NULL,
    source_uid   TEXT    NOT NULL,
    spec         TEXT    NOT NULL,
    env          TEXT    NOT NULL,
    image_digest TEXT    NOT NULL,
    driver       TEXT    NOT NULL,
    memory       INTEGER NOT NULL,
    state        TEXT    NOT NULL,
    disk_bytes   INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,
    created_at   INTEGER NOT NULL
);
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (tenant, name) WHERE state <> 'removing';
CREATE INDEX snapshots_by_name_alone ON snapshots (name) WHERE state = 'ready';
CREATE INDEX snapshots_newest ON snapshots (uid) WHERE state = 'ready';
CREATE INDEX snapshots_by_tenant ON snapshots (tenant, uid);
CREATE INDEX snapshots_unready ON snapshots (uid) WHERE state <> 'ready';
