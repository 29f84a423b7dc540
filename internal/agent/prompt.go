package agent

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
)

// prompt is what every model is told. What differs from daemon to daemon comes after
// it.
//
//go:embed prompt.md
var prompt string

// maxSkill bounds one text of instructions, and maxSkills all of them.
const (
	maxSkill  = 32 << 10
	maxSkills = 128 << 10
)

// Skills is folders of instructions that the operator names: each *.md file in one is a
// skill.
type Skills struct{ texts []string }

// ReadSkills reads the folders. It is Invalid when one cannot be read, or is too much.
func ReadSkills(dirs []string) (*Skills, error) {
	s, size := &Skills{}, 0
	for _, dir := range dirs {
		names, err := filepath.Glob(filepath.Join(dir, "*.md"))
		more, errMore := filepath.Glob(filepath.Join(dir, "*", "SKILL.md"))
		if err != nil || errMore != nil {
			return nil, errs.E(errs.Invalid, "a folder of skills cannot be read").Because(err)
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, errs.E(errs.Invalid, "agent-skills: a folder is not there, or is none").Because(err)
		}
		names = append(names, more...)
		slices.Sort(names)
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, errs.E(errs.Invalid, "a skill cannot be read").Because(err)
			}
			if size += len(text); len(text) > maxSkill || size > maxSkills {
				return nil, errs.E(errs.Invalid, "the skills are too long").Hint("one may have %d bytes, and all together %d", maxSkill, maxSkills)
			}
			s.texts = append(s.texts, strings.TrimSpace(string(text)))
		}
	}
	return s, nil
}

// system returns what makes the system prompt of a run. What the workspace says is read
// anew each time: the model may have changed it.
func (s *Service) system(ctx context.Context, t conversation.Thread, box string) func(context.Context) string {
	fixed := []string{strings.TrimSpace(prompt), s.cfg.Hands.Describe(ctx, t.ID, box)}
	if s.cfg.Skills != nil {
		for _, text := range s.cfg.Skills.texts {
			fixed = append(fixed, "<skill>\n"+text+"\n</skill>")
		}
	}
	return func(ctx context.Context) string {
		parts := slices.Clone(fixed)
		if text := s.cfg.Hands.Instructions(ctx, t.ID, box); text != "" {
			parts = append(parts, "The workspace has an AGENTS.md, which says:\n<agents-md>\n"+text+"\n</agents-md>")
		}
		return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "\n\n")
	}
}
