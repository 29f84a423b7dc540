-- +goose Up

-- The services that are declared and what became of them, sealed: they have env
-- values. '' while there are none.
ALTER TABLE sandboxes ADD COLUMN services TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshots ADD COLUMN services TEXT NOT NULL DEFAULT '';

-- The name of the service whose run an exec is; '' for commands. It is in its spec
-- too.
ALTER TABLE execs ADD COLUMN service TEXT NOT NULL DEFAULT '';
CREATE INDEX execs_by_service ON execs (box, service, seq) WHERE service <> '';
