// Package backups is the door to backups of the data directory: the operator gets one as
// a stream. What is in it is told by internal/backup.
package backups

import (
	"context"
	"io"
	"net/http"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

// Path is where a backup is asked for, with what it is to be without as the query's
// "without".
const Path = "/v1/backup"

// ErrorTrailer says, after a body that is no whole backup, why it is none.
const ErrorTrailer = "Cubby-Error"

// Backup writes a backup.
type Backup func(ctx context.Context, to io.Writer, without []string) error

// Register puts the door on a server.
func Register(take Backup) func(*httpapi.Server) {
	return func(s *httpapi.Server) {
		s.Mux.HandleFunc(http.MethodPost+" "+Path, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := s.UntilDrain(r.Context())
			defer cancel()
			body := &begun{to: w}
			err := operatorOnly(ctx)
			if err == nil {
				err = take(ctx, body, r.URL.Query()["without"])
			}
			switch {
			case err == nil:
			case !body.yes:
				s.Error(w, r, err)
			default:
				w.Header().Set(http.TrailerPrefix+ErrorTrailer, errs.Public(err).Message)
				s.Log.Error("a backup was broken off", "err", err)
			}
		})
	}
}

// operatorOnly refuses a tenant: a backup has the files and the secrets of all.
func operatorOnly(ctx context.Context) error {
	if auth.From(ctx).Tenant != "" {
		return errs.E(errs.Forbidden, "a backup has what all tenants have").Hint("use a token without a tenant")
	}
	return nil
}

// begun is an answer that has its header once something was written.
type begun struct {
	to  http.ResponseWriter
	yes bool
}

func (b *begun) Write(p []byte) (int, error) {
	if !b.yes {
		b.yes = true
		b.to.Header().Set("Content-Type", "application/x-tar")
	}
	return b.to.Write(p)
}
