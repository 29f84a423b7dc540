// Package images is what the commands about images do. Those that need no
// sandbox work on the image directory of this machine without a daemon.
package images

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/image"
)

// Env is what the commands need.
type Env struct {
	Client  func() *client.Client
	Getenv  func(string) string
	Environ []string
	URL     func() string // of the daemon, as the user named it
	// DaemonURL is where one is looked for.
	DaemonURL func() string
	// Flags adds flags for settings of the daemon, and Settings gives those that
	// were set.
	Flags    func(*cobra.Command, func(config.Key) bool)
	Settings func(*cobra.Command) []string
	Usage    func(*cobra.Command, error) error // makes an error one of usage
	// Each acts on every one of some names, and prints those that went well.
	Each func(names []string, asJSON bool, act func(name string) error) error
}

// Command is that of images.
func Command(e Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "image",
		Aliases: []string{"images"},
		Short:   "build, pull, import, list and remove images",
		Long: `Images are the root filesystems that sandboxes start from. These commands work on
the image directory of this machine and need no daemon, except to build an image
with packages of npm or pip or with commands: these run in a sandbox.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(e.lsCommand(), e.buildCommand(), e.pullCommand(), e.importCommand(), e.rmCommand(), e.pruneCommand())
	for _, sub := range cmd.Commands() {
		e.Flags(sub, func(k config.Key) bool { return k.Name == "image-dir" || k.Name == "data-dir" })
	}
	return cmd
}

// open opens the image directory that the daemon would use.
func (e Env) open(cmd *cobra.Command) (*image.Store, error) {
	cfg, err := config.Load(e.Settings(cmd), e.Environ)
	if err != nil {
		return nil, err
	}
	return image.Open(cfg.Images(), slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// note prints a line for people beside the output.
func note(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintf(cmd.ErrOrStderr(), "cubby: "+format+"\n", args...)
}

func jsonFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "print JSON")
}

// printMade tells what an image command made.
func printMade(cmd *cobra.Command, img image.Image, asJSON bool, began time.Time) error {
	if asJSON {
		return format.JSON(cmd.OutOrStdout(), img)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s  %s  %s  in %s\n", img.Name, format.Digest(img.Digest), format.Size(img.Size), time.Since(began).Round(100*time.Millisecond))
	return nil
}
