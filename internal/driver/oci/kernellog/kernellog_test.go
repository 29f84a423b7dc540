package kernellog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/driver"
)

func TestParseKills(t *testing.T) {
	boot := time.Unix(1000, 0)
	const log = `4,1560,2782789283,-;tail invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
6,1,1000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/c/other,task_memcg=/c/other,task=x,task_memcg=/c/box,task=y,pid=1,uid=0
3,2,1000001,-;Memory cgroup out of memory: Killed process 1 (x) total-vm:9kB, anon-rss:9kB, file-rss:9kB, shmem-rss:0kB, UID:0 pgtables:144kB oom_score_adj:0
6,3,2000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/c/box,task_memcg=/c/box,task=a,pid=9,b,pid=42,uid=0
3,4,2000001,-;Memory cgroup out of memory: Killed process 42 (a, anon-rss:1kB) total-vm:53780kB, anon-rss:2048kB, file-rss:1616kB, shmem-rss:0kB, UID:0 pgtables:144kB oom_score_adj:0
3,5,2000002,-;Memory cgroup out of memory: Killed process 43 (other) total-vm:53780kB, anon-rss:4096kB, file-rss:1616kB
6,6,3000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/x/c/box,task_memcg=/x/c/box/inner,task=sh,pid=44,uid=0
6,7,4000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/c/boxer,task=no,pid=45,uid=0
6,8,5000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/c/box,task=no,pid=nine,uid=0
6,9,broken
`
	got := parseKills(log, "/c/box", boot)
	want := []driver.OOMKill{
		{At: boot.Add(2 * time.Second), Process: "a,pid=9,b", PID: 42, Bytes: 2 << 20},
		{At: boot.Add(3 * time.Second), Process: "sh", PID: 44},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parseKills (-want +got):\n%s", diff)
	}
}

func FuzzParseKills(f *testing.F) {
	f.Add("6,3,2000000,-;oom-kill:x,task_memcg=/c/box,task=a,pid=42,uid=0\n3,4,1,-;out of memory: Killed process 42 (a) total-vm:1kB, anon-rss:2048kB,")
	f.Add("6,3,2000000,-;oom-kill:x,task_memcg=/c/box,task=a,pid=42,uid=0\n3,4,1,-;out of memory: Killed process 42 (a), anon-rss:-48kB,")
	f.Fuzz(func(t *testing.T, text string) {
		for _, k := range parseKills(text, "/c/box", time.Time{}) {
			if k.Bytes < 0 {
				t.Errorf("%+v", k)
			}
		}
	})
}
