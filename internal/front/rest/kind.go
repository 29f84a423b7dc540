package rest

import (
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/git"
	"github.com/cubbyhq/cubby/internal/packages"
	"github.com/cubbyhq/cubby/internal/task"
)

// execKind is the operation that an exec carries out.
type execKind string

// Schema lists the kinds of this version.
func (execKind) Schema(huma.Registry) *huma.Schema { return oneOf(execKinds()) }

// eventKind is the fact that an event tells, or the kind of its operation.
type eventKind string

// Schema lists the kinds of this version.
func (eventKind) Schema(huma.Registry) *huma.Schema {
	return oneOf(append(execKinds(), event.Kinds()...))
}

func execKinds() []string {
	return append(git.Kinds(), cell.Kind, packages.Kind, task.Kind, task.KindRestore)
}

func oneOf(words []string) *huma.Schema {
	slices.Sort(words)
	s := &huma.Schema{Type: huma.TypeString}
	for _, w := range words {
		s.Enum = append(s.Enum, w)
	}
	s.PrecomputeMessages()
	return s
}
