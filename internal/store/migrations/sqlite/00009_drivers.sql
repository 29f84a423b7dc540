-- +goose Up

-- Whose handle it is. Before, there was one driver.
ALTER TABLE sandboxes ADD COLUMN driver TEXT NOT NULL DEFAULT '';
UPDATE sandboxes SET driver = 'oci';
