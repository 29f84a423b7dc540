-- +goose Up

-- About how many bytes each of the agent's threads has in the database, with its
-- messages, checkpoints and runs; triggers keep it. What is deleted with its thread
-- finds no row any more.
CREATE TABLE conversation_use (
    thread TEXT    NOT NULL PRIMARY KEY REFERENCES conversations (uid) ON DELETE CASCADE,
    tenant TEXT    NOT NULL,
    bytes  INTEGER NOT NULL
);
CREATE INDEX conversation_use_by_tenant ON conversation_use (tenant, thread, bytes);
INSERT INTO conversation_use (thread, tenant, bytes) SELECT c.uid, c.tenant, 1024 + octet_length(c.metadata) + octet_length(c.config) + octet_length(c.error)
    + COALESCE((SELECT SUM(256 + octet_length(m.body)) FROM conversation_messages m WHERE m.thread = c.uid), 0)
    + COALESCE((SELECT SUM(512 + octet_length(p.nodes) + octet_length(p.tasks) + octet_length(p.metadata) + octet_length(p.messages) + octet_length(p.approval)) FROM checkpoints p WHERE p.thread = c.uid), 0)
    + COALESCE((SELECT SUM(512 + octet_length(r.request) + octet_length(r.metadata) + octet_length(r.error)) FROM runs r WHERE r.thread = c.uid), 0)
    FROM conversations c;

-- +goose StatementBegin
CREATE TRIGGER conversations_counted AFTER INSERT ON conversations BEGIN
    INSERT INTO conversation_use (thread, tenant, bytes) VALUES (NEW.uid, NEW.tenant, 1024 + octet_length(NEW.metadata) + octet_length(NEW.config) + octet_length(NEW.error));
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER conversations_recounted AFTER UPDATE OF metadata, config, error ON conversations
    WHEN octet_length(NEW.metadata) + octet_length(NEW.config) + octet_length(NEW.error) - octet_length(OLD.metadata) - octet_length(OLD.config) - octet_length(OLD.error) <> 0 BEGIN
    UPDATE conversation_use SET bytes = bytes + octet_length(NEW.metadata) + octet_length(NEW.config) + octet_length(NEW.error) - octet_length(OLD.metadata) - octet_length(OLD.config) - octet_length(OLD.error) WHERE thread = NEW.uid;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER conversation_messages_counted AFTER INSERT ON conversation_messages BEGIN
    UPDATE conversation_use SET bytes = bytes + 256 + octet_length(NEW.body) WHERE thread = NEW.thread;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER conversation_messages_uncounted AFTER DELETE ON conversation_messages BEGIN
    UPDATE conversation_use SET bytes = bytes - 256 - octet_length(OLD.body) WHERE thread = OLD.thread;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER checkpoints_counted AFTER INSERT ON checkpoints BEGIN
    UPDATE conversation_use SET bytes = bytes + 512 + octet_length(NEW.nodes) + octet_length(NEW.tasks) + octet_length(NEW.metadata) + octet_length(NEW.messages) + octet_length(NEW.approval) WHERE thread = NEW.thread;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER checkpoints_uncounted AFTER DELETE ON checkpoints BEGIN
    UPDATE conversation_use SET bytes = bytes - 512 - octet_length(OLD.nodes) - octet_length(OLD.tasks) - octet_length(OLD.metadata) - octet_length(OLD.messages) - octet_length(OLD.approval) WHERE thread = OLD.thread;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER checkpoints_recounted AFTER UPDATE OF nodes, tasks, metadata, messages, approval ON checkpoints
    WHEN octet_length(NEW.nodes) + octet_length(NEW.tasks) + octet_length(NEW.metadata) + octet_length(NEW.messages) + octet_length(NEW.approval) - octet_length(OLD.nodes) - octet_length(OLD.tasks) - octet_length(OLD.metadata) - octet_length(OLD.messages) - octet_length(OLD.approval) <> 0 BEGIN
    UPDATE conversation_use SET bytes = bytes + octet_length(NEW.nodes) + octet_length(NEW.tasks) + octet_length(NEW.metadata) + octet_length(NEW.messages) + octet_length(NEW.approval) - octet_length(OLD.nodes) - octet_length(OLD.tasks) - octet_length(OLD.metadata) - octet_length(OLD.messages) - octet_length(OLD.approval) WHERE thread = NEW.thread;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER runs_counted AFTER INSERT ON runs BEGIN
    UPDATE conversation_use SET bytes = bytes + 512 + octet_length(NEW.request) + octet_length(NEW.metadata) + octet_length(NEW.error) WHERE thread = NEW.thread;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER runs_uncounted AFTER DELETE ON runs BEGIN
    UPDATE conversation_use SET bytes = bytes - 512 - octet_length(OLD.request) - octet_length(OLD.metadata) - octet_length(OLD.error) WHERE thread = OLD.thread;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER runs_recounted AFTER UPDATE OF request, metadata, error ON runs
    WHEN octet_length(NEW.request) + octet_length(NEW.metadata) + octet_length(NEW.error) - octet_length(OLD.request) - octet_length(OLD.metadata) - octet_length(OLD.error) <> 0 BEGIN
    UPDATE conversation_use SET bytes = bytes + octet_length(NEW.request) + octet_length(NEW.metadata) + octet_length(NEW.error) - octet_length(OLD.request) - octet_length(OLD.metadata) - octet_length(OLD.error) WHERE thread = NEW.thread;
END;
-- +goose StatementEnd
