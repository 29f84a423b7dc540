-- +goose Up

-- The schema has the number of SQLite's, whose first two this one includes.
-- Texts are compared as bytes, whatever the database's language.

-- Whose the database is: see type postgres.
CREATE TABLE ownership (
    one   BIGINT NOT NULL PRIMARY KEY CHECK (one = 1),
    id    TEXT   NOT NULL, -- in the data directory too
    epoch BIGINT NOT NULL, -- one more with every daemon
    count BIGINT NOT NULL  -- of the daemon's transactions
);

-- One row per incarnation of a sandbox, keyed by its uid. uids sort by the
-- time of their making, so "newest first" is uid descending.
CREATE TABLE sandboxes (
    uid TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    id                    TEXT    NOT NULL,
    id_key TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    spec                  TEXT    NOT NULL,
    external_user_id TEXT COLLATE "C" NOT NULL,
    external_project_id TEXT COLLATE "C" NOT NULL,
    external_workspace_id TEXT COLLATE "C" NOT NULL,
    state                 TEXT    NOT NULL,
    reason                TEXT    NOT NULL,
    handle                BYTEA,
    image_digest          TEXT    NOT NULL,
    disk_uid TEXT COLLATE "C" NOT NULL,
    created_at            BIGINT  NOT NULL,
    updated_at            BIGINT  NOT NULL,
    started_at            BIGINT  NOT NULL,
    stopped_at            BIGINT  NOT NULL,
    destroyed_at          BIGINT  NOT NULL,
    env                   TEXT    NOT NULL DEFAULT ''
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
    box TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES sandboxes (uid) ON DELETE CASCADE,
    last_seq       BIGINT  NOT NULL,
    last_active_at BIGINT  NOT NULL
);

-- The labels of sandboxes that are not destroyed.
CREATE TABLE sandbox_labels (
    name TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C" NOT NULL,
    box TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (uid) ON DELETE CASCADE,
    PRIMARY KEY (name, value, box)
);
CREATE INDEX sandbox_labels_by_box ON sandbox_labels (box);

CREATE TABLE execs (
    box TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (uid) ON DELETE CASCADE,
    seq         BIGINT  NOT NULL,
    uid TEXT COLLATE "C" NOT NULL UNIQUE,
    spec        TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    exit        TEXT,
    created_at  BIGINT  NOT NULL,
    started_at  BIGINT  NOT NULL,
    finished_at BIGINT  NOT NULL,
    kind        TEXT    NOT NULL DEFAULT '',
    session     TEXT COLLATE "C" NOT NULL DEFAULT '',
    terminal    TEXT COLLATE "C" NOT NULL DEFAULT '',
    actor       TEXT    NOT NULL DEFAULT '',
    result      TEXT,
    PRIMARY KEY (box, seq)
);
CREATE INDEX execs_unfinished ON execs (box, seq) WHERE status IN ('pending', 'running');
CREATE INDEX execs_by_session ON execs (box, session, seq) WHERE session <> '';
CREATE INDEX execs_by_terminal ON execs (box, terminal, seq) WHERE terminal <> '';
CREATE INDEX execs_finished ON execs (finished_at) WHERE status NOT IN ('pending', 'running');

-- Env values are secrets: they are sealed, and stay only until their exec has
-- started.
CREATE TABLE exec_env (
    box TEXT COLLATE "C" NOT NULL,
    seq BIGINT  NOT NULL,
    env TEXT    NOT NULL,
    PRIMARY KEY (box, seq),
    FOREIGN KEY (box, seq) REFERENCES execs (box, seq) ON DELETE CASCADE
);

CREATE TABLE kept_disks (
    id_key TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    external_user_id TEXT COLLATE "C" NOT NULL,
    external_project_id TEXT COLLATE "C" NOT NULL,
    external_workspace_id TEXT COLLATE "C" NOT NULL,
    disk_uid TEXT COLLATE "C" NOT NULL UNIQUE,
    kept_at               BIGINT  NOT NULL
);

-- result is NULL while the first request with the key runs.
CREATE TABLE idempotency (
    principal TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    request_hash TEXT    NOT NULL,
    result       TEXT,
    claimed_at   BIGINT  NOT NULL,
    PRIMARY KEY (principal, key)
);
CREATE INDEX idempotency_by_age ON idempotency (claimed_at);

-- Cursors are never used twice, so a reader's place stays right after a prune.
-- No foreign key: facts about the host name no sandbox.
CREATE TABLE events (
    cursor  BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    box TEXT COLLATE "C" NOT NULL,
    kind    TEXT    NOT NULL,
    actor   TEXT    NOT NULL,
    payload TEXT    NOT NULL,
    at      BIGINT  NOT NULL,
    seq     BIGINT  NOT NULL DEFAULT 0,
    status  TEXT    NOT NULL DEFAULT 'done',
    result  TEXT
);
CREATE INDEX events_by_box ON events (box, cursor);
CREATE INDEX events_by_age ON events (at);

-- The history of a destroyed sandbox is found by its id.
CREATE INDEX sandboxes_gone ON sandboxes (id_key, tenant, uid) WHERE state = 'destroyed';
