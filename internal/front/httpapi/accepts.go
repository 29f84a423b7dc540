package httpapi

import (
	"net/textproto"
	"strings"
)

// Accepts reports whether a header names a media type; a wildcard does not.
func Accepts(accept, mediaType string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		media, _, _ := strings.Cut(part, ";")
		if strings.EqualFold(textproto.TrimString(media), mediaType) {
			return true
		}
	}
	return false
}
