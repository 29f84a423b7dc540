//go:build root

package guest_test

import (
	"fmt"
	"testing"
	"os"
)

func TestZZ(t *testing.T) {
	for _, gvisor := range []bool{true, true, true,  false} {
		box := startBox(t, gvisor, nil)
		fmt.Println(gvisor, "ready", box.ready)
		b, _ := os.ReadFile(box.log)
		fmt.Println(string(b))
	}
}
