-- One row per incarnation of a sandbox, keyed by its uid. uids sort by the
-- time of their making, so "newest first" is uid descending.
CREATE TABLE sandboxes (
    uid                   TEXT    NOT NULL PRIMARY KEY,
    id                    TEXT    NOT NULL,
    id_key                TEXT    NOT NULL,
    tenant                TEXT    NOT NULL,
    spec                  TEXT    NOT NULL,
    external_user_id      TEXT    NOT NULL,
    external_project_id   TEXT    NOT NULL,
    external_workspace_id TEXT    NOT NULL,
    state                 TEXT    NOT NULL,
    reason                TEXT    NOT NULL,
    handle                BLOB,
    image_digest          TEXT    NOT NULL,
    disk_uid              TEXT    NOT NULL,
    created_at            INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL,
    started_at            INTEGER NOT NULL,
    stopped_at            INTEGER NOT NULL,
    destroyed_at          INTEGER NOT NULL
);

-- An id names one sandbox at a time, whatever its case.
CREATE UNIQUE INDEX sandboxes_by_id ON sandboxes (id_key) WHERE state <> 'destroyed';
CREATE INDEX sandboxes_newest ON sandboxes (uid) WHERE state <> 'destroyed';
CREATE INDEX sandboxes_by_state ON sandboxes (state, uid) WHERE state <> 'destroyed';
CREATE INDEX sandboxes_by_tenant ON sandboxes (tenant, uid) WHERE state <> 'destroyed';
CREATE INDEX sandboxes_by_user ON sandboxes (external_user_id, uid) WHERE state <> 'destroyed';
CREATE INDEX sandboxes_by_project ON sandboxes (external_project_id, uid) WHERE state <> 'destroyed';
CREATE INDEX sandboxes_ended ON sandboxes (updated_at) WHERE state IN ('failed', 'destroyed');

-- What every exec changes, apart from the wide row above.
CREATE TABLE sandbox_activity (
    box            TEXT    NOT NULL PRIMARY KEY REFERENCES sandboxes (uid) ON DELETE CASCADE,
    last_seq       INTEGER NOT NULL,
    last_active_at INTEGER NOT NULL
);

-- The labels of sandboxes that are not destroyed.
CREATE TABLE sandbox_labels (
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    box   TEXT NOT NULL REFERENCES sandboxes (uid) ON DELETE CASCADE,
    PRIMARY KEY (name, value, box)
);
CREATE INDEX sandbox_labels_by_box ON sandbox_labels (box);

CREATE TABLE execs (
    box         TEXT    NOT NULL REFERENCES sandboxes (uid) ON DELETE CASCADE,
    seq         INTEGER NOT NULL,
    uid         TEXT    NOT NULL UNIQUE,
    spec        TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    exit        TEXT,
    created_at  INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    PRIMARY KEY (box, seq)
);
CREATE INDEX execs_unfinished ON execs (box, seq) WHERE status IN ('pending', 'running');
CREATE INDEX execs_finished ON execs (finished_at) WHERE status NOT IN ('pending', 'running');

-- Env values are secrets: they stay only until their exec has started.
CREATE TABLE exec_env (
    box TEXT    NOT NULL,
    seq INTEGER NOT NULL,
    env TEXT    NOT NULL,
    PRIMARY KEY (box, seq),
    FOREIGN KEY (box, seq) REFERENCES execs (box, seq) ON DELETE CASCADE
);

CREATE TABLE kept_disks (
    id_key                TEXT    NOT NULL PRIMARY KEY,
    tenant                TEXT    NOT NULL,
    external_user_id      TEXT    NOT NULL,
    external_project_id   TEXT    NOT NULL,
    external_workspace_id TEXT    NOT NULL,
    disk_uid              TEXT    NOT NULL UNIQUE,
    kept_at               INTEGER NOT NULL
);

-- result is NULL while the first request with the key runs.
CREATE TABLE idempotency (
    principal    TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    request_hash TEXT    NOT NULL,
    result       TEXT,
    claimed_at   INTEGER NOT NULL,
    PRIMARY KEY (principal, key)
);
CREATE INDEX idempotency_by_age ON idempotency (claimed_at);

-- Cursors are never used twice, so a reader's place stays right after a prune.
-- No foreign key: facts about the host name no sandbox.
CREATE TABLE events (
    cursor  INTEGER PRIMARY KEY AUTOINCREMENT,
    box     TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    actor   TEXT    NOT NULL,
    payload TEXT    NOT NULL,
    at      INTEGER NOT NULL
);
CREATE INDEX events_by_box ON events (box, cursor);
CREATE INDEX events_by_age ON events (at);

CREATE TABLE goose_db_version (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    version_id INTEGER NOT NULL,
    is_applied INTEGER NOT NULL,
    tstamp TIMESTAMP DEFAULT (datetime('now'))
);
INSERT INTO goose_db_version (version_id, is_applied) VALUES (0, 1), (1, 1);

INSERT INTO sandboxes VALUES (
    '01kd000000000000000000000a', 'Box', 'box', 'acme',
    '{"image":"base","isolation":"gvisor","limits":{"memory_bytes":1073741824,"cpus":2,"pids":512,"disk_bytes":4294967296,"open_files":1024},"env":{"A":"b"},"user":"sandbox","labels":{"k":"v"},"network":{"mode":"allowlist"},"visibility":"private","exec_timeout":300000000000,"idle_policy":"stop","idle_timeout":1800000000000}',
    'u', '', '', 'running', '', x'0001', 'sha256:1', '01kd000000000000000000000a',
    1767323045000006, 1767323045000006, 1767323045000006, 0, 0);
INSERT INTO sandbox_activity VALUES ('01kd000000000000000000000a', 2, 1767323045000006);
INSERT INTO sandbox_labels VALUES ('k', 'v', '01kd000000000000000000000a');
INSERT INTO execs VALUES ('01kd000000000000000000000a', 1, '01kd000000000000000000000b',
    '{"shell":"exit 3","cwd":"/workspace","user":"sandbox"}', 'done', '{"exit_code":3,"reason":"exited"}',
    1767323045000006, 1767323045000006, 1767323045000006);
INSERT INTO execs VALUES ('01kd000000000000000000000a', 2, '01kd000000000000000000000c',
    '{"argv":["env"],"cwd":"/workspace","user":"sandbox"}', 'pending', NULL, 1767323045000006, 0, 0);
INSERT INTO exec_env VALUES ('01kd000000000000000000000a', 2, '{"KEY":"value"}');
INSERT INTO kept_disks VALUES ('gone', 'acme', 'u', '', '', '01kd000000000000000000000d', 1767323045000006);
INSERT INTO idempotency VALUES ('p', 'k', 'h', '01kd000000000000000000000a', 1767323045000006);
INSERT INTO events VALUES (7, '01kd000000000000000000000a', 'sandbox.created', 'p', '{}', 1767323045000006);
