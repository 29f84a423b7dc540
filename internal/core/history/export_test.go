package history

import "time"

// SetEndsTime sets how long the ends of commands are waited for.
func (h *Events) SetEndsTime(d time.Duration) { h.endsTime = d }
