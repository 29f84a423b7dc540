package telemetry

import (
	"fmt"
	"io"
	"log/slog"
)

// Close closes what has done its work already: that it fails is only logged.
func Close(log *slog.Logger, c io.Closer) {
	if err := c.Close(); err != nil {
		log.Warn("close", "what", fmt.Sprintf("%T", c), KeyErr, err)
	}
}
