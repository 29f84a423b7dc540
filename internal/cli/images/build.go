package images

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/localdaemon"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/image"
)

func (e Env) buildCommand() *cobra.Command {
	var asJSON bool
	var r image.BuildRequest
	cmd := &cobra.Command{
		Use:   "build [flags] NAME",
		Short: "build an image from Debian packages, or from another image",
		Long: `Builds one of cubby's own images with mmdebstrap, as root. The packages are kept, so
that a second build needs no network. The recipes: base has Python and Node, data has
what analyses need beyond it, dev has coding agents, r has R, debian no language but C.

With --from it builds an image of your own, which adds packages and commands to another
one: first those of apt, then npm, pip and the commands, as root. All but apt's
are carried out in a sandbox: npm and pip reach their registries, the commands only
hosts that --allow names. The home directory, /workspace and /tmp are not part of an
image.`,
		Example: `  cubby image build base
  cubby image build mine --from base --pip polars --npm typescript@5.9.2
  cubby image build tools --from base --apt ffmpeg --run 'mkdir /models'`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: image.Recipes(),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Name = args[0]
			store, err := e.open(cmd)
			if err != nil {
				return err
			}
			inSandbox, err := store.NeedsSandbox(r)
			if err != nil {
				return err
			}
			if inSandbox {
				return e.buildInSandbox(cmd, r, asJSON)
			}
			began, bar := time.Now(), newProgress(cmd)
			img, err := store.Build(cmd.Context(), r.Name, bar.step)
			bar.done()
			if err != nil {
				return err
			}
			return printMade(cmd, img, asJSON, began)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.From, "from", "", "build from this `image`")
	f.StringArrayVar(&r.Apt, "apt", nil, "add a Debian `package`; may be repeated")
	f.StringArrayVar(&r.NPM, "npm", nil, "add a `package` of npm: lodash@4.17.21; may be repeated")
	f.StringArrayVar(&r.PIP, "pip", nil, "add a `package` of pip: six==1.16.0; may be repeated")
	f.StringArrayVar(&r.Run, "run", nil, "run a `command` as root; may be repeated")
	f.StringArrayVar(&r.Allow, "allow", nil, "a `host` that the commands may reach; may be repeated")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// buildDir is the data directory of builds in an image directory that is named
// without one.
const buildDir = ".build"

// buildInSandbox has a daemon build: the one that answers, or else one of this
// process. One of this process has the directories that were named.
func (e Env) buildInSandbox(cmd *cobra.Command, r image.BuildRequest, asJSON bool) (err error) {
	d := &localdaemon.Daemon{URL: e.DaemonURL(), Environ: e.Environ, Log: cmd.ErrOrStderr()}
	if d.Own = e.dirNamed(cmd); d.Own {
		if d.Flags, err = e.ownSettings(cmd); err != nil {
			return err
		}
	} else {
		d.Flags = []string{"--pool=off", "--disk-pool=0", "--sentry-pool=0", "--container-pool=0", "--log-level=warn"}
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	url, err := d.Find(cmd.Context())
	if err != nil {
		return err
	}
	began, bar := time.Now(), newProgress(cmd)
	img, err := client.New(url, client.WithToken(e.Getenv("CUBBY_TOKEN"))).CreateImage(cmd.Context(), client.ImageOptions{
		Name: r.Name, From: r.From, Apt: r.Apt, ImageSteps: client.ImageSteps(r.Steps),
		Progress: func(p client.ImageProgress) {
			if p.Printed != nil {
				bar.done()
				_, _ = cmd.ErrOrStderr().Write(p.Printed) // nothing to do about it
				return
			}
			bar.step(image.Step{Stage: p.Stage, Done: p.Done, Total: p.Total, Items: p.Items})
		},
	})
	bar.done()
	switch {
	case err != nil:
		return err
	case asJSON:
		return format.JSON(cmd.OutOrStdout(), img)
	}
	return printMade(cmd, image.Image{Name: img.Name, Digest: img.Digest, Size: img.Size}, false, began)
}

// dirNamed reports whether a directory was named on the command line.
func (e Env) dirNamed(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("image-dir") || cmd.Flags().Changed("data-dir")
}

// ownSettings are those of a daemon that is only for this build.
func (e Env) ownSettings(cmd *cobra.Command) ([]string, error) {
	flags := append(e.Settings(cmd), "--listen=127.0.0.1:0", "--preview-listen=off", "--pool=off", "--disk-pool=0", "--sentry-pool=0", "--container-pool=0", "--log-level=warn", "--on-shutdown="+string(config.Destroy))
	if cmd.Flags().Changed("data-dir") {
		return flags, nil
	}
	cfg, err := config.Load(flags, e.Environ)
	if err != nil {
		return nil, err
	}
	return append(flags, "--data-dir="+filepath.Join(cfg.Images(), buildDir)), nil
}
