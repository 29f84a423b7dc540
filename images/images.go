// Package images holds the recipes of the images that cubby can build, one
// directory each, embedded so that the cubby program alone can build them.
// internal/image reads them; what a recipe may say is described there.
package images

import (
	"embed"
	"io/fs"
)

//go:embed all:base all:data all:debian all:dev all:r
var recipes embed.FS

// FS returns the recipes: a directory per image, named like it.
func FS() fs.FS { return recipes }
