-- +goose Up

-- The thread is in the spec too; here it is to be searched for.
ALTER TABLE sandboxes ADD COLUMN thread TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE sandboxes SET thread = COALESCE(spec::jsonb ->> 'thread', '');
CREATE INDEX sandboxes_by_thread ON sandboxes (tenant, thread, uid) WHERE thread <> '' AND state <> 'destroyed';

-- Paths of live sandboxes that others may read.
CREATE TABLE exports (
    box TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (uid) ON DELETE CASCADE,
    path TEXT COLLATE "C" NOT NULL,
    kind       TEXT    NOT NULL,
    size       BIGINT  NOT NULL,
    created_at BIGINT  NOT NULL,
    PRIMARY KEY (box, path)
);
