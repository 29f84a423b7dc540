-- +goose Up

-- The secrets that an operator sets for the tasks of a tenant; '' is the tenant of
-- sandboxes of none. A value is sealed for its tenant and name.
CREATE TABLE secrets (
    tenant     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
);
