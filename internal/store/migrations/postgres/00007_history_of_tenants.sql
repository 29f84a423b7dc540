-- +goose Up

-- A sandbox keeps its tenant for its life, so what it leaves behind can have
-- it too: the oldest of one tenant is found without those of the others.
ALTER TABLE execs ADD COLUMN tenant TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN tenant TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE execs SET tenant = (SELECT tenant FROM sandboxes WHERE uid = execs.box)
    WHERE box IN (SELECT uid FROM sandboxes WHERE tenant <> '');
UPDATE events SET tenant = (SELECT tenant FROM sandboxes WHERE uid = events.box)
    WHERE box IN (SELECT uid FROM sandboxes WHERE tenant <> '');
CREATE INDEX execs_finished_by_tenant ON execs (tenant, finished_at) WHERE status NOT IN ('pending', 'running');
CREATE INDEX events_by_tenant ON events (tenant, at);
CREATE INDEX sandboxes_ended_by_tenant ON sandboxes (tenant, updated_at) WHERE state IN ('failed', 'destroyed');

-- Bytes of the history that a tenant has in the tables above; triggers keep it.
CREATE TABLE history (
    tenant TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    bytes  BIGINT  NOT NULL
);
INSERT INTO history (tenant, bytes) SELECT tenant, SUM(bytes) FROM (
    SELECT tenant, 512 + octet_length(spec) + COALESCE(octet_length(exit), 0) + COALESCE(octet_length(result), 0) AS bytes FROM execs
    UNION ALL SELECT tenant, 256 + octet_length(payload) + COALESCE(octet_length(result), 0) FROM events
    UNION ALL SELECT tenant, 1024 + octet_length(spec) FROM sandboxes WHERE state IN ('failed', 'destroyed')
) AS kept GROUP BY tenant;

-- +goose StatementBegin
CREATE FUNCTION keep_history(t TEXT, more BIGINT) RETURNS VOID AS $$
    INSERT INTO history (tenant, bytes) VALUES (t, more)
        ON CONFLICT (tenant) DO UPDATE SET bytes = history.bytes + excluded.bytes;
$$ LANGUAGE sql;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION keep_history_of_execs() RETURNS TRIGGER AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        PERFORM keep_history(NEW.tenant, 512 + octet_length(NEW.spec) + COALESCE(octet_length(NEW.exit), 0) + COALESCE(octet_length(NEW.result), 0));
    END IF;
    IF TG_OP <> 'INSERT' THEN
        PERFORM keep_history(OLD.tenant, -512 - octet_length(OLD.spec) - COALESCE(octet_length(OLD.exit), 0) - COALESCE(octet_length(OLD.result), 0));
    END IF;
    RETURN NULL;
END $$ LANGUAGE plpgsql;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION keep_history_of_events() RETURNS TRIGGER AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM keep_history(NEW.tenant, 256 + octet_length(NEW.payload) + COALESCE(octet_length(NEW.result), 0));
    ELSE
        PERFORM keep_history(OLD.tenant, -256 - octet_length(OLD.payload) - COALESCE(octet_length(OLD.result), 0));
    END IF;
    RETURN NULL;
END $$ LANGUAGE plpgsql;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION keep_history_of_sandboxes() RETURNS TRIGGER AS $$
BEGIN
    IF TG_OP <> 'DELETE' AND NEW.state IN ('failed', 'destroyed') THEN
        PERFORM keep_history(NEW.tenant, 1024 + octet_length(NEW.spec));
    END IF;
    IF OLD.state IN ('failed', 'destroyed') THEN
        PERFORM keep_history(OLD.tenant, -1024 - octet_length(OLD.spec));
    END IF;
    RETURN NULL;
END $$ LANGUAGE plpgsql;
-- +goose StatementEnd
CREATE TRIGGER execs_added AFTER INSERT OR DELETE ON execs FOR EACH ROW EXECUTE FUNCTION keep_history_of_execs();
CREATE TRIGGER execs_changed AFTER UPDATE OF spec, exit, result ON execs FOR EACH ROW EXECUTE FUNCTION keep_history_of_execs();
CREATE TRIGGER events_changed AFTER INSERT OR DELETE ON events FOR EACH ROW EXECUTE FUNCTION keep_history_of_events();
CREATE TRIGGER sandboxes_ended AFTER UPDATE OF state, spec OR DELETE ON sandboxes FOR EACH ROW EXECUTE FUNCTION keep_history_of_sandboxes();
