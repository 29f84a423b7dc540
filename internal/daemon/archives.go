package daemon

import (
	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/errs"
)

// archiveStorage is where archives go; nil when none is set up.
func archiveStorage(c config.Config) (*archive.Storage, error) {
	if c.ArchiveURL == "" {
		if c.ArchiveEndpoint != "" || c.ArchiveAccessKey != "" || c.ArchiveSecretKey != "" {
			return nil, errs.E(errs.Invalid, "archive-url: missing beside the other keys of the archive storage")
		}
		return nil, nil
	}
	return archive.Open(archive.Config{
		URL: c.ArchiveURL, Endpoint: c.ArchiveEndpoint, Region: c.ArchiveRegion,
		AccessKey: string(c.ArchiveAccessKey), SecretKey: string(c.ArchiveSecretKey),
	})
}
