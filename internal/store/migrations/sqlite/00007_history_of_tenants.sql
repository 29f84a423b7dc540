-- +goose Up

-- A sandbox keeps its tenant for its life, so what it leaves behind can have
-- it too: the oldest of one tenant is found without those of the others.
ALTER TABLE execs ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
UPDATE execs SET tenant = (SELECT tenant FROM sandboxes WHERE uid = execs.box)
    WHERE box IN (SELECT uid FROM sandboxes WHERE tenant <> '');
UPDATE events SET tenant = (SELECT tenant FROM sandboxes WHERE uid = events.box)
    WHERE box IN (SELECT uid FROM sandboxes WHERE tenant <> '');
CREATE INDEX execs_finished_by_tenant ON execs (tenant, finished_at) WHERE status NOT IN ('pending', 'running');
CREATE INDEX events_by_tenant ON events (tenant, at);
CREATE INDEX sandboxes_ended_by_tenant ON sandboxes (tenant, updated_at) WHERE state IN ('failed', 'destroyed');

-- Bytes of the history that a tenant has in the tables above; triggers keep it.
CREATE TABLE history (
    tenant TEXT    NOT NULL PRIMARY KEY,
    bytes  INTEGER NOT NULL
);
INSERT INTO history (tenant, bytes) SELECT tenant, SUM(bytes) FROM (
    SELECT tenant, 512 + octet_length(spec) + COALESCE(octet_length(exit), 0) + COALESCE(octet_length(result), 0) AS bytes FROM execs
    UNION ALL SELECT tenant, 256 + octet_length(payload) + COALESCE(octet_length(result), 0) FROM events
    UNION ALL SELECT tenant, 1024 + octet_length(spec) FROM sandboxes WHERE state IN ('failed', 'destroyed')
) AS kept GROUP BY tenant;

-- +goose StatementBegin
CREATE TRIGGER execs_added AFTER INSERT ON execs BEGIN
    INSERT INTO history (tenant, bytes) VALUES (NEW.tenant, 512 + octet_length(NEW.spec) + COALESCE(octet_length(NEW.exit), 0) + COALESCE(octet_length(NEW.result), 0))
        ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER execs_changed AFTER UPDATE OF spec, exit, result ON execs BEGIN
    UPDATE history SET bytes = bytes
        + octet_length(NEW.spec) + COALESCE(octet_length(NEW.exit), 0) + COALESCE(octet_length(NEW.result), 0)
        - octet_length(OLD.spec) - COALESCE(octet_length(OLD.exit), 0) - COALESCE(octet_length(OLD.result), 0)
        WHERE tenant = NEW.tenant;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER execs_removed AFTER DELETE ON execs BEGIN
    UPDATE history SET bytes = bytes - 512 - octet_length(OLD.spec) - COALESCE(octet_length(OLD.exit), 0) - COALESCE(octet_length(OLD.result), 0)
        WHERE tenant = OLD.tenant;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER events_added AFTER INSERT ON events BEGIN
    INSERT INTO history (tenant, bytes) VALUES (NEW.tenant, 256 + octet_length(NEW.payload) + COALESCE(octet_length(NEW.result), 0))
        ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER events_removed AFTER DELETE ON events BEGIN
    UPDATE history SET bytes = bytes - 256 - octet_length(OLD.payload) - COALESCE(octet_length(OLD.result), 0)
        WHERE tenant = OLD.tenant;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER sandboxes_ended AFTER UPDATE OF state, spec ON sandboxes
    WHEN NEW.state IN ('failed', 'destroyed') OR OLD.state IN ('failed', 'destroyed') BEGIN
    INSERT INTO history (tenant, bytes) VALUES (NEW.tenant,
            CASE WHEN NEW.state IN ('failed', 'destroyed') THEN 1024 + octet_length(NEW.spec) ELSE 0 END
            - CASE WHEN OLD.state IN ('failed', 'destroyed') THEN 1024 + octet_length(OLD.spec) ELSE 0 END)
        ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER sandboxes_removed AFTER DELETE ON sandboxes
    WHEN OLD.state IN ('failed', 'destroyed') BEGIN
    UPDATE history SET bytes = bytes - 1024 - octet_length(OLD.spec) WHERE tenant = OLD.tenant;
END;
-- +goose StatementEnd
