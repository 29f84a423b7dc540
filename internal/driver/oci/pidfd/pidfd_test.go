package pidfd

import "testing"

func FuzzZombieStatus(f *testing.F) {
	f.Add([]byte("42 (sh) S 1 42 42 0 -1 4194560 100 200 0 0 1 2 3 4 20 0 1 0 777 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 9\n"))
	f.Add([]byte("42 (a) b) S) Z 1"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = zombieStatus(data) })
}

func TestZombieStatus(t *testing.T) {
	const stat = "42 (a) R) Z 1 42 42 0 -1 4194560 100 200 0 0 1 2 3 4 20 0 1 0 777 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 9\n"
	status, ok := zombieStatus([]byte(stat))
	if !ok || !status.Signaled() || status.Signal() != 9 {
		t.Errorf("zombieStatus = %v, %v; want signal 9", status, ok)
	}
}
