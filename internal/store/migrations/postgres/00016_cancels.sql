-- +goose Up

-- When somebody asked that an exec be ended, which is answered before it is done: a
-- daemon that is started meanwhile does it. 0 for all others.
ALTER TABLE execs ADD COLUMN cancelled_at BIGINT NOT NULL DEFAULT 0;
