-- +goose Up

-- What an exec is part of, and what came of it. The first three are in its
-- spec too; here they are to be searched for.
ALTER TABLE execs ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE execs ADD COLUMN session TEXT NOT NULL DEFAULT '';
ALTER TABLE execs ADD COLUMN terminal TEXT NOT NULL DEFAULT '';
ALTER TABLE execs ADD COLUMN actor TEXT NOT NULL DEFAULT '';
ALTER TABLE execs ADD COLUMN result TEXT;
CREATE INDEX execs_by_session ON execs (box, session, seq) WHERE session <> '';
CREATE INDEX execs_by_terminal ON execs (box, terminal, seq) WHERE terminal <> '';

-- Env values are kept sealed; exec_env.env is too from here on.
ALTER TABLE sandboxes ADD COLUMN env TEXT NOT NULL DEFAULT '';

ALTER TABLE events ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE events ADD COLUMN status TEXT NOT NULL DEFAULT 'done';
ALTER TABLE events ADD COLUMN result TEXT;
