-- +goose Up

-- The history of a destroyed sandbox is found by its id.
CREATE INDEX sandboxes_gone ON sandboxes (id_key, tenant, uid) WHERE state = 'destroyed';
