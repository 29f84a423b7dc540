package lifecycle

import "context"

// ImagesInUse are the digests of the images that sandboxes were made from.
func (s *Sandboxes) ImagesInUse(ctx context.Context) (map[string]bool, error) {
	rows, err := s.rows(ctx, liveRows)
	used := make(map[string]bool, len(rows))
	for _, b := range rows {
		used[b.ImageDigest] = true
	}
	return used, err
}
