package images

import "testing"

func TestArchiveNames(t *testing.T) {
	for file, want := range map[string]string{"root.tar.gz": "root", "debian-12.tgz": "debian-12", "plain": "plain"} {
		if got := archiveName(file); got != want {
			t.Errorf("archiveName(%q) = %q, want %q", file, got, want)
		}
	}
}
