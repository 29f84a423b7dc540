package services

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/client"
)

func TestServicesAreReadFromFlags(t *testing.T) {
	for _, tt := range []struct {
		flag string
		want client.ServiceSpec
	}{
		{"web=npm run dev", client.ServiceSpec{Name: "web", Command: "npm run dev"}},
		{"web,port=3000=A=b npm run dev, or so", client.ServiceSpec{Name: "web", Port: 3000, Command: "A=b npm run dev, or so"}},
		{"w,restart=on_failure,cwd=/workspace/app,requires=/workspace/app/x,env.A=b,env.C==./w", client.ServiceSpec{
			Name: "w", Restart: "on_failure", Cwd: "/workspace/app", Requires: "/workspace/app/x", Env: map[string]string{"A": "b", "C": ""}, Command: "./w",
		}},
		{"a==", client.ServiceSpec{Name: "a", Command: "="}},
	} {
		got, err := Parse([]string{tt.flag})
		if err != nil || !cmp.Equal(got, []client.ServiceSpec{tt.want}) {
			t.Errorf("%q: %s, %v", tt.flag, cmp.Diff(tt.want, got), err)
		}
	}
	for _, flag := range []string{"", "web", "=x", "web=", "web,port=3000", "web,port=x=y", "web,colour=red=y", "web,port", "web,=x"} {
		if got, err := Parse([]string{flag}); err == nil {
			t.Errorf("%q is taken as %+v", flag, got)
		}
	}
}
