// Package tasks is the supervisor of one coding-agent task, a program of its own
// inside the sandbox ("cubby-init task"): it takes a checkpoint of the project's
// files, runs the agent, says what happens as lines of JSON on its standard output,
// reads replies on its standard input, checks build and health, and ends with the
// task's result. See [task.Order] for what it is asked to do.
//
// It runs as the sandbox's user, in the sandbox's memory, beside what the user and
// the agent run: it is no wall against them. What it prints holds none of the
// secrets that it knows of.
package tasks
