-- +goose Up

-- The calls of tools in a checkpoint's state that a person has to decide about, with the
-- policy of the run that made them, as JSON; '' when there are none.
ALTER TABLE checkpoints ADD COLUMN approval TEXT NOT NULL DEFAULT '';
