package images

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (e Env) importCommand() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "import [flags] FILE|-",
		Short: "make an image from an archive",
		Long: `Unpacks what "docker save" writes, an OCI archive, or a tar of a root filesystem;
compressed or not. "-" reads the archive from the input.`,
		Example: `  cubby image import rootfs.tar.gz --name mine
  docker save my-image | cubby image import - --name mine`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, length, r := args[0], int64(0), cmd.InOrStdin()
			if source == "-" {
				if name == "" {
					return e.Usage(cmd, errors.New("what comes from the input needs a --name"))
				}
			} else {
				f, err := os.Open(source)
				if err != nil {
					return err
				}
				defer f.Close()
				if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
					length = info.Size()
				}
				r = io.Reader(f)
				source = filepath.Base(source)
				if name == "" {
					name = archiveName(source)
				}
			}
			store, err := e.open(cmd)
			if err != nil {
				return err
			}
			began, bar := time.Now(), newProgress(cmd)
			img, err := store.Import(cmd.Context(), r, length, source, name, bar.step)
			bar.done()
			if err != nil {
				return err
			}
			return printMade(cmd, img, asJSON, began)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the image (default: the file's)")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// archiveName is a file's name without what says that it is an archive.
func archiveName(file string) string {
	for _, ext := range []string{".gz", ".zst", ".xz", ".tgz", ".tar"} {
		file = strings.TrimSuffix(file, ext)
	}
	return file
}
