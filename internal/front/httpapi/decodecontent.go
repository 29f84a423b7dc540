package httpapi

import (
	"io"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// DecodeContent reads the content of a file that a field of a body holds, as text
// or base64.
func DecodeContent(field string, text io.Reader, encoding string) (io.Reader, error) {
	switch encoding {
	case "", "text":
		return text, nil
	case "base64":
		return front.Base64(field, text)
	}
	return nil, errs.E(errs.Invalid, "encoding: neither text nor base64")
}
