-- +goose Up

-- The secrets that an operator sets for the tasks of a tenant; '' is the tenant of
-- sandboxes of none. A value is sealed for its tenant and name.
CREATE TABLE secrets (
    tenant TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    value      TEXT   NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);
