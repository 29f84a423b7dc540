-- +goose Up
CREATE INDEX kept_disks_by_tenant ON kept_disks (tenant);
