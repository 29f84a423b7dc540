-- +goose Up

-- What the agent of a tenant keeps beyond its threads. A namespace is its labels with
-- U+001F between them, so that its order is that of the labels. ttl is in microseconds,
-- 0 for none; so is expires_at, the time when the item is gone. fields says which
-- of the value are searched: '' for all, else JSON.
CREATE TABLE items (
    tenant     TEXT    NOT NULL,
    namespace  TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    fields     TEXT    NOT NULL,
    bytes      INTEGER NOT NULL,
    ttl        INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, namespace, key)
);
CREATE INDEX items_newest ON items (tenant, updated_at DESC, namespace, key);
CREATE INDEX items_expiring ON items (expires_at, tenant, namespace, key) WHERE expires_at > 0;

-- How many items a tenant has, and how large they are together.
CREATE TABLE item_usage (
    tenant TEXT    NOT NULL PRIMARY KEY,
    items  INTEGER NOT NULL,
    bytes  INTEGER NOT NULL
);

-- The versions of assistants, the one in use among them.
CREATE TABLE assistant_versions (
    tenant      TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    graph_id    TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    description TEXT    NOT NULL,
    config      TEXT    NOT NULL,
    context     TEXT    NOT NULL,
    metadata    TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, id, version),
    FOREIGN KEY (tenant, id) REFERENCES assistants (tenant, id) ON DELETE CASCADE
);
INSERT INTO assistant_versions (tenant, id, version, graph_id, name, description, config, context, metadata, created_at)
    SELECT tenant, id, version, graph_id, name, description, config, context, metadata, updated_at FROM assistants;

-- Runs of the agent that begin by the clock. thread is NULL when each has one of its
-- own. run is what each is to do, as JSON. next_at is 0 when none is to come. last_run
-- is the newest one, in the thread last_thread, and failure why none began at last_at.
CREATE TABLE crons (
    id          TEXT    NOT NULL PRIMARY KEY,
    tenant      TEXT    NOT NULL,
    owner       TEXT    NOT NULL,
    assistant   TEXT    NOT NULL,
    thread      TEXT REFERENCES conversations (uid) ON DELETE CASCADE,
    schedule    TEXT    NOT NULL,
    timezone    TEXT    NOT NULL,
    run         TEXT    NOT NULL,
    metadata    TEXT    NOT NULL,
    keep        INTEGER NOT NULL,
    enabled     INTEGER NOT NULL,
    end_at      INTEGER NOT NULL,
    next_at     INTEGER NOT NULL,
    last_at     INTEGER NOT NULL,
    last_thread TEXT    NOT NULL,
    last_run    TEXT    NOT NULL,
    failure     TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    FOREIGN KEY (tenant, assistant) REFERENCES assistants (tenant, id) ON DELETE CASCADE
);
CREATE INDEX crons_of_tenant ON crons (tenant, created_at, id);
CREATE INDEX crons_of_thread ON crons (thread) WHERE thread IS NOT NULL;
CREATE INDEX crons_of_assistant ON crons (tenant, assistant);
CREATE INDEX crons_due ON crons (next_at, id) WHERE enabled = 1 AND next_at > 0;
