package guestd

import (
	"net/http"

	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
)

// fileService implements the file methods of the guest service.
//
// Handlers return errors of package errs (classify names an errno), never
// connect errors; raw paths answer with writeError.
type fileService struct {
	guestv1connect.UnimplementedGuestServiceHandler
	cfg Config
}

func newFileService(cfg Config) *fileService { return &fileService{cfg: cfg} }

// register adds the raw paths for file contents and archives, all below
// /v1/files/.
func (f *fileService) register(*http.ServeMux) {}
