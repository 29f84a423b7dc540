package config_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestPools(t *testing.T) {
	whole := config.Pool{
		Count: 3, Image: "base", Isolation: sandbox.Container, Limits: config.Limits{MemoryBytes: 512 << 20, CPUs: 1.5, PIDs: 100, DiskBytes: 1 << 30},
		User: "root", Kernel: "python", Modules: []string{"numpy", "pandas"},
	}
	text := "count=3, image=base, isolation=container, memory=512MiB, cpus=1.5, pids=100, disk=1GiB, user=root, kernel=python, modules=numpy+pandas"
	file := write(t, `
[[pool]]
count = 3
image = "base"
isolation = "container"
memory = "512MiB"
cpus = 1.5
pids = 100
disk = "1GiB"
user = "root"
kernel = "python"
modules = ["numpy", "pandas"]
[[pool]]
kernel = "none"
`)
	off := write(t, "pool = 'off'\n")
	for name, tt := range map[string]struct {
		args []string
		want config.Pools
	}{
		"default":        {nil, config.Pools{Auto: true}},
		"auto":           {[]string{"--pool=auto"}, config.Pools{Auto: true}},
		"off":            {[]string{"--pool=off"}, config.Pools{}},
		"one":            {[]string{"--pool", text}, config.Pools{List: []config.Pool{whole}}},
		"two":            {[]string{"--pool", text + "; kernel=node;"}, config.Pools{List: []config.Pool{whole, {Count: 1, Kernel: "node"}}}},
		"file":           {[]string{"--config", file}, config.Pools{List: []config.Pool{whole, {Count: 1}}}},
		"off in file":    {[]string{"--config", off}, config.Pools{}},
		"flag over file": {[]string{"--config", file, "--pool=off"}, config.Pools{}},
	} {
		c, err := config.Load(tt.args, nil)
		if err != nil || !reflect.DeepEqual(c.Pool, tt.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, c.Pool, err, tt.want)
		}
	}
	for _, text := range []string{
		";", "on", "count=0", "count=101", "count=two", "images=base", "kernel=cobol", "modules=numpy", "kernel=none,modules=numpy", "memory=much",
		"open_files=3", strings.Repeat("count=1;", 21),
	} {
		if _, err := config.ParsePools(text); errs.KindOf(err) != errs.Invalid {
			t.Errorf("ParsePools(%q) = %v, want invalid", text, err)
		}
	}
	for _, text := range []string{"[[pool]]\nimages = 'base'\n", "[[pool]]\nimage = 'a,count=3'\n", "[[listen]]\na = 1\n", "[pool]\ncount = 1\n"} {
		if _, err := config.Load([]string{"--config", write(t, text)}, nil); errs.KindOf(err) != errs.Invalid {
			t.Errorf("the file %q = %v, want invalid", text, err)
		}
	}
}
