package client

import "github.com/cubbyhq/cubby/client/display"

// Bundle is one value in several MIME types.
type Bundle = display.Bundle
