package image

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// BuildRequest asks for an image: with From for another one with more in it,
// else for that of the built-in recipe of its name.
type BuildRequest struct {
	Name string   // of the image that is made
	From string   // an image, by its name or digest
	Apt  []string // Debian packages, out of the archives of From's recipe
	Steps
}

// Definition says what an image was made of that was built from another one.
type Definition struct {
	// Recipe is the built-in recipe that it comes from, or Image the digest of
	// one that has none.
	Recipe string   `json:"recipe,omitempty"`
	Image  string   `json:"image,omitempty"`
	Apt    []string `json:"apt,omitempty"`   // beyond those of the recipe
	Steps  []Steps  `json:"steps,omitempty"` // beyond those of the recipe, in their order
}

// Prepared is a build whose Debian part is done. Its steps have to run in a
// sandbox that is begun from the image, whose root filesystem
// [Store.ImportSystem] takes. Without steps the image is the result.
type Prepared struct {
	Image Image
	Steps []Steps
	// Env is the environment of the image that is made, which its steps have
	// too; KEY=VALUE.
	Env []string

	about about
}

// Build makes an image without steps. Unsupported when it has some.
func (s *Store) Build(ctx context.Context, recipe string, p Progress) (Image, error) {
	made, err := s.Prepare(ctx, BuildRequest{Name: recipe}, p)
	if err == nil && len(made.Steps) > 0 {
		err = errs.E(errs.Unsupported, "the recipe %s has steps, which run in a sandbox", recipe)
	}
	return made.Image, err
}

// NeedsSandbox reports whether a build has steps. It is the error of
// [Store.Prepare] for a request that makes no sense by itself.
func (s *Store) NeedsSandbox(r BuildRequest) (bool, error) {
	if err := r.check(); err != nil {
		return false, err
	}
	if r.From != "" {
		return true, nil
	}
	recipe, err := loadRecipe(s.recipes, r.Name)
	return err == nil && len(recipe.rounds) > 0, err
}

// Prepare does the Debian part of a build, if there is anything to do. NotFound
// when there is no such recipe or image; Invalid for names of packages that are
// none; Unsupported for Debian packages in an image that has no recipe. An image
// that these steps have made already is the result, where the steps are those of
// a built-in recipe.
func (s *Store) Prepare(ctx context.Context, r BuildRequest, p Progress) (Prepared, error) {
	if err := r.check(); err != nil {
		return Prepared{}, err
	}
	var b Prepared
	var err error
	if r.From == "" {
		b, err = s.prepareRecipe(ctx, r.Name, p)
	} else {
		b, err = s.prepareFrom(ctx, r, p)
	}
	if err != nil {
		return Prepared{}, fmt.Errorf("build %s: %w", r.Name, err)
	}
	for i := range b.Steps {
		b.Steps[i] = b.Steps[i].onThisHost()
	}
	return b, nil
}

func (r BuildRequest) check() error {
	if err := checkName(r.Name); err != nil {
		return err
	}
	if r.From == "" {
		if len(r.Apt) > 0 || !r.none() || len(r.Allow) > 0 {
			return errs.E(errs.Invalid, "packages and commands need an image that they are added to").
				Hint("name it: cubby image build %s --from base …", r.Name)
		}
		return nil
	}
	if len(r.Apt) == 0 && r.none() {
		return errs.E(errs.Invalid, "there is nothing to add to %.*q", maxNameLength, r.From).
			Hint("give packages of pip, npm or apt, or a command to run")
	}
	if err := checkPackages("apt", r.Apt, ".+-"); err != nil {
		return err
	}
	return r.Steps.check()
}

// prepareRecipe prepares the image of a built-in recipe.
func (s *Store) prepareRecipe(ctx context.Context, name string, p Progress) (Prepared, error) {
	r, err := loadRecipe(s.recipes, name)
	if err != nil {
		return Prepared{}, err
	}
	a := about{name: name, source: buildSource + name, recipe: r.key, env: r.environment()}
	if len(r.rounds) == 0 {
		img, err := s.buildDebian(ctx, r, a, p)
		return Prepared{Image: img}, err
	}
	img, err := s.debianPart(ctx, r, p)
	if err != nil {
		return Prepared{}, err
	}
	a.inputs = stepsKey(img.Digest, r.rounds, a.env)
	if made, ok := s.existing(ctx, name, a.inputs); ok {
		return Prepared{Image: made}, nil
	}
	return Prepared{Image: img, Steps: slices.Clone(r.rounds), Env: a.env, about: a}, nil
}

// debianPart makes the Debian part of a recipe as an image without a name.
func (s *Store) debianPart(ctx context.Context, r *Recipe, p Progress) (Image, error) {
	return s.buildDebian(ctx, r.debian, about{source: buildSource + r.debian.name, recipe: r.debian.key}, p)
}

// prepareFrom prepares an image that adds to another.
func (s *Store) prepareFrom(ctx context.Context, r BuildRequest, p Progress) (Prepared, error) {
	if slices.Contains(recipeNames(s.recipes), r.Name) {
		return Prepared{}, errs.E(errs.Conflict, "%s is the name of a built-in recipe", r.Name).Hint("choose another name")
	}
	img, err := s.Resolve(ctx, r.From)
	if err != nil {
		return Prepared{}, err
	}
	d := s.definitionOf(img)
	b := Prepared{Image: img, Env: img.Env}
	if !r.none() {
		b.Steps = []Steps{r.Steps}
	}
	if len(r.Apt) > 0 {
		recipe, err := s.recipeOf(d, r.From)
		if err != nil {
			return Prepared{}, err
		}
		d.Apt = slices.Concat(d.Apt, r.Apt)
		recipe = recipe.with(d.Apt)
		b.Env = recipe.environment()
		b.Steps = slices.Concat(recipe.rounds, d.Steps, b.Steps)
		if b.Image, err = s.debianPart(ctx, recipe, p); err != nil {
			return Prepared{}, err
		}
	}
	if !r.none() {
		d.Steps = slices.Concat(d.Steps, []Steps{r.Steps})
	}
	b.about = about{name: r.Name, source: buildSource + r.Name + " from " + r.From, env: b.Env, definition: &d}
	if len(b.Steps) == 0 { // Debian packages only
		b.Image, err = s.rename(ctx, b.Image, b.about)
	}
	return b, err
}

// definitionOf says what an image was made of.
func (s *Store) definitionOf(img Image) Definition {
	if img.Definition != nil {
		return *img.Definition
	}
	if name, built := strings.CutPrefix(img.Source, buildSource); built && slices.Contains(recipeNames(s.recipes), name) {
		return Definition{Recipe: name}
	}
	return Definition{Image: img.Digest}
}

// recipeOf is the built-in recipe that an image comes from.
func (s *Store) recipeOf(d Definition, name string) (*Recipe, error) {
	if d.Recipe == "" {
		return nil, errs.E(errs.Unsupported, "apt: the image %.*q was not built from a recipe, so nothing says where its packages come from", maxNameLength, name).
			Hint("build from an image that `cubby image build` made, or install the packages with a run step")
	}
	return loadRecipe(s.recipes, d.Recipe)
}

// rename gives an image that has no name yet one, and notes what it was made of.
func (s *Store) rename(ctx context.Context, img Image, a about) (Image, error) {
	release, err := s.lock(ctx)
	if err != nil {
		return Image{}, err
	}
	defer release()
	dir := filepath.Join(s.dir, img.Digest)
	r, err := readRecord(dir)
	if err != nil {
		return Image{}, fmt.Errorf("read image: %w", err)
	}
	named, err := s.readNames()
	if err != nil {
		return Image{}, err
	}
	if !slices.Contains(slices.Collect(maps.Values(named)), img.Digest) { // else it is another image that has these packages
		r.Source, r.Definition = a.source, a.definition
		if err := r.write(dir); err != nil {
			return Image{}, fmt.Errorf("write image: %w", err)
		}
	}
	if err := s.setName(a.name, img.Digest); err != nil {
		return Image{}, err
	}
	img = s.load(ctx, img.Digest)
	img.Name = a.name
	return img, nil
}
