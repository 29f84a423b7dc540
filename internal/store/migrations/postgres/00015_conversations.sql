-- +goose Up

-- The assistants of tenants. config, context and metadata are JSON objects.
CREATE TABLE assistants (
    tenant TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    graph_id TEXT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    description TEXT NOT NULL,
    version BIGINT NOT NULL,
    config TEXT NOT NULL,
    context TEXT NOT NULL,
    metadata TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- The agent's threads. error is '' for none, head the id of a checkpoint. Runs and
-- messages are counted in last_run and last_place, so that no number is given twice.
CREATE TABLE conversations (
    uid TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    owner TEXT NOT NULL,
    metadata TEXT NOT NULL,
    config TEXT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    error TEXT NOT NULL,
    head TEXT COLLATE "C" NOT NULL,
    last_run BIGINT NOT NULL,
    last_place BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    state_updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX conversations_by_id ON conversations (tenant, id);
CREATE INDEX conversations_by_age ON conversations (created_at, uid);
CREATE INDEX conversations_by_tenant ON conversations (tenant, created_at, uid);
CREATE INDEX conversations_resting ON conversations (tenant, updated_at DESC, uid DESC) WHERE status <> 'busy';

-- The metadata of a thread by its first names, to be searched: value is canonical
-- JSON, or its digest when that is long.
CREATE TABLE conversation_metadata (
    thread TEXT COLLATE "C" NOT NULL REFERENCES conversations (uid) ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (thread, name)
);

-- The messages of a thread. They never change.
CREATE TABLE conversation_messages (
    thread TEXT COLLATE "C" NOT NULL REFERENCES conversations (uid) ON DELETE CASCADE,
    place BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (thread, place)
);

-- The checkpoints of a thread. messages are the places of the state's messages, as
-- "1-40,43".
CREATE TABLE checkpoints (
    thread TEXT COLLATE "C" NOT NULL REFERENCES conversations (uid) ON DELETE CASCADE,
    id TEXT COLLATE "C" NOT NULL,
    parent TEXT COLLATE "C" NOT NULL,
    source TEXT NOT NULL,
    step BIGINT NOT NULL,
    nodes TEXT NOT NULL,
    tasks TEXT NOT NULL,
    metadata TEXT NOT NULL,
    run TEXT COLLATE "C" NOT NULL,
    messages TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (thread, id)
);
CREATE INDEX checkpoints_by_run ON checkpoints (thread, run, id) WHERE run <> '';

-- The runs of a thread. secret is sealed, and '' when there is none or the run has
-- ended.
CREATE TABLE runs (
    thread TEXT COLLATE "C" NOT NULL REFERENCES conversations (uid) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    assistant TEXT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    error TEXT NOT NULL,
    metadata TEXT NOT NULL,
    multitask TEXT NOT NULL,
    request TEXT NOT NULL,
    secret TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (thread, seq)
);
CREATE UNIQUE INDEX runs_by_id ON runs (thread, id);
CREATE INDEX runs_by_status ON runs (thread, status, seq);
CREATE INDEX runs_unfinished ON runs (tenant, thread, seq) WHERE status IN ('pending', 'running');

-- The settings of the agent by tenant; '' are the operator's. The document is JSON,
-- sealed for its tenant: it has the keys of providers.
CREATE TABLE agent_settings (
    tenant TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    document TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);
