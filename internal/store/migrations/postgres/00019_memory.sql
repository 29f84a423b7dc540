-- +goose Up

-- What the agent of a tenant keeps beyond its threads. A namespace is its labels with
-- U+001F between them, so that its order is that of the labels. ttl is in microseconds,
-- 0 for none; so is expires_at, the time when the item is gone. fields says which
-- of the value are searched: '' for all, else JSON.
CREATE TABLE items (
    tenant TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    value TEXT NOT NULL,
    fields TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    ttl BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, namespace, key)
);
CREATE INDEX items_newest ON items (tenant, updated_at DESC, namespace, key);
CREATE INDEX items_expiring ON items (expires_at, tenant, namespace, key) WHERE expires_at > 0;

-- How many items a tenant has, and how large they are together.
CREATE TABLE item_usage (
    tenant TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    items BIGINT NOT NULL,
    bytes BIGINT NOT NULL
);

-- The versions of assistants, the one in use among them.
CREATE TABLE assistant_versions (
    tenant TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    graph_id TEXT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    description TEXT NOT NULL,
    config TEXT NOT NULL,
    context TEXT NOT NULL,
    metadata TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id, version),
    FOREIGN KEY (tenant, id) REFERENCES assistants (tenant, id) ON DELETE CASCADE
);
INSERT INTO assistant_versions (tenant, id, version, graph_id, name, description, config, context, metadata, created_at)
    SELECT tenant, id, version, graph_id, name, description, config, context, metadata, updated_at FROM assistants;

-- Runs of the agent that begin by the clock. thread is NULL when each has one of its
-- own. run is what each is to do, as JSON. next_at is 0 when none is to come. last_run
-- is the newest one, in the thread last_thread, and failure why none began at last_at.
CREATE TABLE crons (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    assistant TEXT COLLATE "C" NOT NULL,
    thread TEXT COLLATE "C" REFERENCES conversations (uid) ON DELETE CASCADE,
    schedule TEXT NOT NULL,
    timezone TEXT NOT NULL,
    run TEXT NOT NULL,
    metadata TEXT NOT NULL,
    keep BIGINT NOT NULL,
    enabled BIGINT NOT NULL,
    end_at BIGINT NOT NULL,
    next_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    last_thread TEXT COLLATE "C" NOT NULL,
    last_run TEXT COLLATE "C" NOT NULL,
    failure TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    FOREIGN KEY (tenant, assistant) REFERENCES assistants (tenant, id) ON DELETE CASCADE
);
CREATE INDEX crons_of_tenant ON crons (tenant, created_at, id);
CREATE INDEX crons_of_thread ON crons (thread) WHERE thread IS NOT NULL;
CREATE INDEX crons_of_assistant ON crons (tenant, assistant);
CREATE INDEX crons_due ON crons (next_at, id) WHERE enabled = 1 AND next_at > 0;
