CREATE TRIGGER checkpoints_counted AFTER INSERT ON checkpoints BEGIN
    UPDATE conversation_use SET bytes = bytes + 512 + octet_length(NEW.nodes) + octet_length(NEW.tasks) + octet_length(NEW.metadata) + octet_length(NEW.messages) + octet_length(NEW.approval) WHERE thread = NEW.thread;
END;

CREATE TRIGGER checkpoints_recounted AFTER UPDATE OF nodes, tasks, metadata, messages, approval ON checkpoints
    WHEN octet_length(NEW.nodes) + octet_length(NEW.tasks) + octet_length(NEW.metadata) + octet_length(NEW.messages) + octet_length(NEW.approval) - octet_length(OLD.nodes) - octet_length(OLD.tasks) - octet_length(OLD.metadata) - octet_length(OLD.messages) - octet_length(OLD.approval) <> 0 BEGIN
    UPDATE conversation_use SET bytes = bytes + octet_length(NEW.nodes) + octet_length(NEW.tasks) + octet_length(NEW.metadata) + octet_length(NEW.messages) + octet_length(NEW.approval) - octet_length(OLD.nodes) - octet_length(OLD.tasks) - octet_length(OLD.metadata) - octet_length(OLD.messages) - octet_length(OLD.approval) WHERE thread = NEW.thread;
END;

CREATE TRIGGER checkpoints_uncounted AFTER DELETE ON checkpoints BEGIN
    UPDATE conversation_use SET bytes = bytes - 512 - octet_length(OLD.nodes) - octet_length(OLD.tasks) - octet_length(OLD.metadata) - octet_length(OLD.messages) - octet_length(OLD.approval) WHERE thread = OLD.thread;
END;

CREATE TRIGGER conversation_messages_counted AFTER INSERT ON conversation_messages BEGIN
    UPDATE conversation_use SET bytes = bytes + 256 + octet_length(NEW.body) WHERE thread = NEW.thread;
END;

CREATE TRIGGER conversation_messages_uncounted AFTER DELETE ON conversation_messages BEGIN
    UPDATE conversation_use SET bytes = bytes - 256 - octet_length(OLD.body) WHERE thread = OLD.thread;
END;

CREATE TRIGGER conversations_counted AFTER INSERT ON conversations BEGIN
    INSERT INTO conversation_use (thread, tenant, bytes) VALUES (NEW.uid, NEW.tenant, 1024 + octet_length(NEW.metadata) + octet_length(NEW.config) + octet_length(NEW.error));
END;

CREATE TRIGGER conversations_recounted AFTER UPDATE OF metadata, config, error ON conversations
    WHEN octet_length(NEW.metadata) + octet_length(NEW.config) + octet_length(NEW.error) - octet_length(OLD.metadata) - octet_length(OLD.config) - octet_length(OLD.error) <> 0 BEGIN
    UPDATE conversation_use SET bytes = bytes + octet_length(NEW.metadata) + octet_length(NEW.config) + octet_length(NEW.error) - octet_length(OLD.metadata) - octet_length(OLD.config) - octet_length(OLD.error) WHERE thread = NEW.uid;
END;

CREATE TRIGGER events_added AFTER INSERT ON events BEGIN
    INSERT INTO history (tenant, bytes) VALUES (NEW.tenant, 256 + octet_length(NEW.payload) + COALESCE(octet_length(NEW.result), 0))
        ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER events_removed AFTER DELETE ON events BEGIN
    UPDATE history SET bytes = bytes - 256 - octet_length(OLD.payload) - COALESCE(octet_length(OLD.result), 0)
        WHERE tenant = OLD.tenant;
END;

CREATE TRIGGER execs_added AFTER INSERT ON execs BEGIN
    INSERT INTO history (tenant, bytes) VALUES (NEW.tenant, 512 + octet_length(NEW.spec) + COALESCE(octet_length(NEW.exit), 0) + COALESCE(octet_length(NEW.result), 0))
        ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER execs_changed AFTER UPDATE OF spec, exit, result ON execs BEGIN
    UPDATE history SET bytes = bytes
        + octet_length(NEW.spec) + COALESCE(octet_length(NEW.exit), 0) + COALESCE(octet_length(NEW.result), 0)
        - octet_length(OLD.spec) - COALESCE(octet_length(OLD.exit), 0) - COALESCE(octet_length(OLD.result), 0)
        WHERE tenant = NEW.tenant;
END;

CREATE TRIGGER execs_removed AFTER DELETE ON execs BEGIN
    UPDATE history SET bytes = bytes - 512 - octet_length(OLD.spec) - COALESCE(octet_length(OLD.exit), 0) - COALESCE(octet_length(OLD.result), 0)
        WHERE tenant = OLD.tenant;
END;

CREATE TRIGGER runs_counted AFTER INSERT ON runs BEGIN
    UPDATE conversation_use SET bytes = bytes + 512 + octet_length(NEW.request) + octet_length(NEW.metadata) + octet_length(NEW.error) WHERE thread = NEW.thread;
END;

CREATE TRIGGER runs_recounted AFTER UPDATE OF request, metadata, error ON runs
    WHEN octet_length(NEW.request) + octet_length(NEW.metadata) + octet_length(NEW.error) - octet_length(OLD.request) - octet_length(OLD.metadata) - octet_length(OLD.error) <> 0 BEGIN
    UPDATE conversation_use SET bytes = bytes + octet_length(NEW.request) + octet_length(NEW.metadata) + octet_length(NEW.error) - octet_length(OLD.request) - octet_length(OLD.metadata) - octet_length(OLD.error) WHERE thread = NEW.thread;
END;

CREATE TRIGGER runs_uncounted AFTER DELETE ON runs BEGIN
    UPDATE conversation_use SET bytes = bytes - 512 - octet_length(OLD.request) - octet_length(OLD.metadata) - octet_length(OLD.error) WHERE thread = OLD.thread;
END;

CREATE TRIGGER sandboxes_ended AFTER UPDATE OF state, spec ON sandboxes
    WHEN NEW.state IN ('failed', 'destroyed') OR OLD.state IN ('failed', 'destroyed') BEGIN
    INSERT INTO history (tenant, bytes) VALUES (NEW.tenant,
            CASE WHEN NEW.state IN ('failed', 'destroyed') THEN 1024 + octet_length(NEW.spec) ELSE 0 END
            - CASE WHEN OLD.state IN ('failed', 'destroyed') THEN 1024 + octet_length(OLD.spec) ELSE 0 END)
        ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER sandboxes_removed AFTER DELETE ON sandboxes
    WHEN OLD.state IN ('failed', 'destroyed') BEGIN
    UPDATE history SET bytes = bytes - 1024 - octet_length(OLD.spec) WHERE tenant = OLD.tenant;
END;

CREATE TABLE agent_settings (
    tenant     TEXT    NOT NULL PRIMARY KEY,
    document   TEXT    NOT NULL,
    updated_at INTEGER NOT NULL
);

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

CREATE TABLE assistants (
    tenant      TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    graph_id    TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    description TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    config      TEXT    NOT NULL,
    context     TEXT    NOT NULL,
    metadata    TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE checkpoints (
    thread     TEXT    NOT NULL REFERENCES conversations (uid) ON DELETE CASCADE,
    id         TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    step       INTEGER NOT NULL,
    nodes      TEXT    NOT NULL,
    tasks      TEXT    NOT NULL,
    metadata   TEXT    NOT NULL,
    run        TEXT    NOT NULL,
    messages   TEXT    NOT NULL,
    created_at INTEGER NOT NULL, approval TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (thread, id)
);

CREATE TABLE conversation_messages (
    thread TEXT    NOT NULL REFERENCES conversations (uid) ON DELETE CASCADE,
    place  INTEGER NOT NULL,
    body   TEXT    NOT NULL,
    PRIMARY KEY (thread, place)
);

CREATE TABLE conversation_metadata (
    thread TEXT NOT NULL REFERENCES conversations (uid) ON DELETE CASCADE,
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (thread, name)
);

CREATE TABLE conversation_use (
    thread TEXT    NOT NULL PRIMARY KEY REFERENCES conversations (uid) ON DELETE CASCADE,
    tenant TEXT    NOT NULL,
    bytes  INTEGER NOT NULL
);

CREATE TABLE conversations (
    uid              TEXT    NOT NULL PRIMARY KEY,
    id               TEXT    NOT NULL,
    tenant           TEXT    NOT NULL,
    owner            TEXT    NOT NULL,
    metadata         TEXT    NOT NULL,
    config           TEXT    NOT NULL,
    status           TEXT    NOT NULL,
    error            TEXT    NOT NULL,
    head             TEXT    NOT NULL,
    last_run         INTEGER NOT NULL,
    last_place       INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    state_updated_at INTEGER NOT NULL
);

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

CREATE TABLE events (
    cursor  INTEGER PRIMARY KEY AUTOINCREMENT,
    box     TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    actor   TEXT    NOT NULL,
    payload TEXT    NOT NULL,
    at      INTEGER NOT NULL
, seq INTEGER NOT NULL DEFAULT 0, status TEXT NOT NULL DEFAULT 'done', result TEXT, tenant TEXT NOT NULL DEFAULT '');

CREATE TABLE exec_env (
    box TEXT    NOT NULL,
    seq INTEGER NOT NULL,
    env TEXT    NOT NULL,
    PRIMARY KEY (box, seq),
    FOREIGN KEY (box, seq) REFERENCES execs (box, seq) ON DELETE CASCADE
);

CREATE TABLE execs (
    box         TEXT    NOT NULL REFERENCES sandboxes (uid) ON DELETE CASCADE,
    seq         INTEGER NOT NULL,
    uid         TEXT    NOT NULL UNIQUE,
    spec        TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    exit        TEXT,
    created_at  INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER NOT NULL, kind TEXT NOT NULL DEFAULT '', session TEXT NOT NULL DEFAULT '', terminal TEXT NOT NULL DEFAULT '', actor TEXT NOT NULL DEFAULT '', result TEXT, tenant TEXT NOT NULL DEFAULT '', service TEXT NOT NULL DEFAULT '', cancelled_at INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (box, seq)
);

CREATE TABLE exports (
    box        TEXT    NOT NULL REFERENCES sandboxes (uid) ON DELETE CASCADE,
    path       TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    size       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (box, path)
);

CREATE TABLE history (
    tenant TEXT    NOT NULL PRIMARY KEY,
    bytes  INTEGER NOT NULL
);

CREATE TABLE idempotency (
    principal    TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    request_hash TEXT    NOT NULL,
    result       TEXT,
    claimed_at   INTEGER NOT NULL,
    PRIMARY KEY (principal, key)
);

CREATE TABLE item_usage (
    tenant TEXT    NOT NULL PRIMARY KEY,
    items  INTEGER NOT NULL,
    bytes  INTEGER NOT NULL
);

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

CREATE TABLE kept_disks (
    id_key                TEXT    NOT NULL PRIMARY KEY,
    tenant                TEXT    NOT NULL,
    external_user_id      TEXT    NOT NULL,
    external_project_id   TEXT    NOT NULL,
    external_workspace_id TEXT    NOT NULL,
    disk_uid              TEXT    NOT NULL UNIQUE,
    kept_at               INTEGER NOT NULL
);

CREATE TABLE runs (
    thread     TEXT    NOT NULL REFERENCES conversations (uid) ON DELETE CASCADE,
    seq        INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    tenant     TEXT    NOT NULL,
    assistant  TEXT    NOT NULL,
    status     TEXT    NOT NULL,
    error      TEXT    NOT NULL,
    metadata   TEXT    NOT NULL,
    multitask  TEXT    NOT NULL,
    request    TEXT    NOT NULL,
    secret     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (thread, seq)
);

CREATE TABLE sandbox_activity (
    box            TEXT    NOT NULL PRIMARY KEY REFERENCES sandboxes (uid) ON DELETE CASCADE,
    last_seq       INTEGER NOT NULL,
    last_active_at INTEGER NOT NULL
);

CREATE TABLE sandbox_labels (
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    box   TEXT NOT NULL REFERENCES sandboxes (uid) ON DELETE CASCADE,
    PRIMARY KEY (name, value, box)
);

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
, env TEXT NOT NULL DEFAULT '', thread TEXT NOT NULL DEFAULT '', cause TEXT NOT NULL DEFAULT '', driver TEXT NOT NULL DEFAULT '', link_key TEXT NOT NULL DEFAULT '', services TEXT NOT NULL DEFAULT '');

CREATE TABLE secrets (
    tenant     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
);

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
, services TEXT NOT NULL DEFAULT '');

CREATE TABLE tenants (
    name       TEXT    NOT NULL PRIMARY KEY,
    disk_uid   TEXT    NOT NULL UNIQUE,
    ready      INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);

CREATE TABLE webhook_messages (
    id         TEXT    NOT NULL PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    url        TEXT    NOT NULL,
    body       TEXT    NOT NULL,
    bytes      INTEGER NOT NULL,
    state      TEXT    NOT NULL,
    attempts   INTEGER NOT NULL,
    status     INTEGER NOT NULL,
    failure    TEXT    NOT NULL,
    next_at    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE TABLE webhook_secrets (
    tenant     TEXT    NOT NULL PRIMARY KEY,
    secret     TEXT    NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE INDEX checkpoints_by_run ON checkpoints (thread, run, id) WHERE run <> '';

CREATE INDEX conversation_use_by_tenant ON conversation_use (tenant, thread, bytes);

CREATE INDEX conversations_by_age ON conversations (created_at, uid);

CREATE UNIQUE INDEX conversations_by_id ON conversations (tenant, id);

CREATE INDEX conversations_by_tenant ON conversations (tenant, created_at, uid);

CREATE INDEX conversations_resting ON conversations (tenant, updated_at DESC, uid DESC) WHERE status <> 'busy';

CREATE INDEX crons_due ON crons (next_at, id) WHERE enabled = 1 AND next_at > 0;

CREATE INDEX crons_of_assistant ON crons (tenant, assistant);

CREATE INDEX crons_of_tenant ON crons (tenant, created_at, id);

CREATE INDEX crons_of_thread ON crons (thread) WHERE thread IS NOT NULL;

CREATE INDEX events_by_age ON events (at);

CREATE INDEX events_by_box ON events (box, cursor);

CREATE INDEX events_by_tenant ON events (tenant, at);

CREATE INDEX execs_by_service ON execs (box, service, seq) WHERE service <> '';

CREATE INDEX execs_by_session ON execs (box, session, seq) WHERE session <> '';

CREATE INDEX execs_by_terminal ON execs (box, terminal, seq) WHERE terminal <> '';

CREATE INDEX execs_finished ON execs (finished_at) WHERE status NOT IN ('pending', 'running');

CREATE INDEX execs_finished_by_tenant ON execs (tenant, finished_at) WHERE status NOT IN ('pending', 'running');

CREATE INDEX execs_unfinished ON execs (box, seq) WHERE status IN ('pending', 'running');

CREATE INDEX idempotency_by_age ON idempotency (claimed_at);

CREATE INDEX items_expiring ON items (expires_at, tenant, namespace, key) WHERE expires_at > 0;

CREATE INDEX items_newest ON items (tenant, updated_at DESC, namespace, key);

CREATE INDEX kept_disks_by_tenant ON kept_disks (tenant);

CREATE UNIQUE INDEX runs_by_id ON runs (thread, id);

CREATE INDEX runs_by_status ON runs (thread, status, seq);

CREATE INDEX runs_unfinished ON runs (tenant, thread, seq) WHERE status IN ('pending', 'running');

CREATE INDEX sandbox_labels_by_box ON sandbox_labels (box);

CREATE UNIQUE INDEX sandboxes_by_id ON sandboxes (id_key) WHERE state <> 'destroyed';

CREATE INDEX sandboxes_by_project ON sandboxes (external_project_id, uid) WHERE state <> 'destroyed';

CREATE INDEX sandboxes_by_state ON sandboxes (state, uid) WHERE state <> 'destroyed';

CREATE INDEX sandboxes_by_tenant ON sandboxes (tenant, uid) WHERE state <> 'destroyed';

CREATE INDEX sandboxes_by_thread ON sandboxes (tenant, thread, uid) WHERE thread <> '' AND state <> 'destroyed';

CREATE INDEX sandboxes_by_user ON sandboxes (external_user_id, uid) WHERE state <> 'destroyed';

CREATE INDEX sandboxes_ended ON sandboxes (updated_at) WHERE state IN ('failed', 'destroyed');

CREATE INDEX sandboxes_ended_by_tenant ON sandboxes (tenant, updated_at) WHERE state IN ('failed', 'destroyed');

CREATE INDEX sandboxes_gone ON sandboxes (id_key, tenant, uid) WHERE state = 'destroyed';

CREATE INDEX sandboxes_newest ON sandboxes (uid) WHERE state <> 'destroyed';

CREATE UNIQUE INDEX snapshots_by_name ON snapshots (tenant, name) WHERE state <> 'removing';

CREATE INDEX snapshots_by_name_alone ON snapshots (name) WHERE state = 'ready';

CREATE INDEX snapshots_by_tenant ON snapshots (tenant, uid);

CREATE INDEX snapshots_newest ON snapshots (uid) WHERE state = 'ready';

CREATE INDEX snapshots_unready ON snapshots (uid) WHERE state <> 'ready';

CREATE INDEX webhook_messages_due ON webhook_messages (tenant, next_at, id, bytes) WHERE state = 'pending';

CREATE INDEX webhook_messages_ended ON webhook_messages (updated_at, id) WHERE state <> 'pending';

CREATE INDEX webhook_messages_of_tenant ON webhook_messages (tenant, created_at DESC, id DESC);
