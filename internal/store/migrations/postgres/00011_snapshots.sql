-- +goose Up

-- What was kept of sandboxes, which it outlives. env is sealed, as a sandbox's
-- is. A row that is not ready is of an act that was cut off: it goes when all is
-- gone that the snapshot had.
CREATE TABLE snapshots (
    uid TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    source_id    TEXT    NOT NULL,
    source_uid TEXT COLLATE "C" NOT NULL,
    spec         TEXT    NOT NULL,
    env          TEXT    NOT NULL,
    image_digest TEXT    NOT NULL,
    driver       TEXT    NOT NULL,
    memory       BIGINT NOT NULL,
    state        TEXT    NOT NULL,
    disk_bytes   BIGINT NOT NULL,
    memory_bytes BIGINT NOT NULL,
    created_at   BIGINT NOT NULL
);
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (tenant, name) WHERE state <> 'removing';
CREATE INDEX snapshots_by_name_alone ON snapshots (name) WHERE state = 'ready';
CREATE INDEX snapshots_newest ON snapshots (uid) WHERE state = 'ready';
CREATE INDEX snapshots_by_tenant ON snapshots (tenant, uid);
CREATE INDEX snapshots_unready ON snapshots (uid) WHERE state <> 'ready';
