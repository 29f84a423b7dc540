package mcp_test

import (
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// supervised is a daemon whose tasks are done by a shell script, which has say to
// print a record.
func supervised(t *testing.T, script string) *daemontest.Daemon {
	const say = `say() { printf '{"type":"%s","at":"2026-01-02T03:04:05Z","data":%s}\n' "$1" "$2"; }
`
	return daemontest.Start(t, daemontest.Options{Supervisor: []string{"bash", "-c", say + script, "supervisor"}})
}

// eventText is the events of an answer, a line each.
func eventText(out object) string {
	var all []string
	for _, e := range out["events"].([]any) {
		e := e.(object)
		all = append(all, e["type"].(string)+"="+e["text"].(string))
	}
	return strings.Join(all, "\n")
}

func TestTask(t *testing.T) {
	d := supervised(t, `
say status '{"phase":"agent_running","checkpoint_id":"c0ffee"}'
say delta '{"of":"message","message_id":"m","text":"hel"}'
say message '{"role":"agent","text":"hello","message_id":"m"}'
say tool '{"name":"edit","status":"completed","path":"a.txt"}'
say permission '{"id":"q1","status":"pending","tool":{"name":"bash","path":"make"},"options":[{"id":"yes","name":"Allow","kind":"allow_once"}]}'
read -r answer
say permission '{"id":"q1","status":"resolved","outcome":"yes"}'
say diff '{"path":"a.txt","status":"added","patch":"+x"}'
say done '{"status":"succeeded","files_changed":["a.txt"],"agent_message_final":"hello","build_ok":false,"build_error_message":"no","checkpoint_id":"c0ffee","tokens":{"cost":0.25}}'
`)
	eras(t, func(t *testing.T, version string) {
		s := client{url: d.URL, version: version}.connect(t)
		id := begin(t, s)
		defer good(t, s, "stop_session", object{"session_id": id})
		of := object{"session_id": id, "task_id": good(t, s, "start_task", object{"session_id": id, "prompt": "make a", "agent": "claude", "ask": true})["task_id"]}
		with := func(more object) object {
			for k, v := range of {
				more[k] = v
			}
			return more
		}
		// The wait is over when the agent asks.
		out := good(t, s, "get_task", with(object{"wait": 50}))
		want := "status=agent_running\nmessage=hello\ntool=edit a.txt: completed\npermission=question q1: may it bash make? options: yes (Allow)"
		if got := eventText(out); got != want || out["status"] != "running" || out["next"] != 5.0 {
			t.Errorf("get_task = %v\n%s", out, got)
		}
		bad(t, s, "start_task", object{"session_id": id, "prompt": "another"})
		bad(t, s, "answer_task", with(object{"question": "q1", "option": "maybe"}))
		bad(t, s, "answer_task", with(object{"question": "q2", "option": "yes"}))
		good(t, s, "answer_task", with(object{"question": "q1", "option": "yes"}))
		out = good(t, s, "get_task", with(object{"wait": 50, "since": out["next"]}))
		if got := eventText(out); got != "permission=question q1 was answered: yes\ndiff=added a.txt\n+x" || out["next"] != 8.0 {
			t.Errorf("at the end: %v\n%s", out, got)
		}
		if out["status"] != "succeeded" || out["final_message"] != "hello" || out["build_error"] != "no" || out["checkpoint"] != true || out["cost_usd"] != 0.25 {
			t.Errorf("the result: %v", out)
		}
		if out := good(t, s, "get_task", with(object{"since": out["next"]})); len(out["events"].([]any)) != 0 || out["next"] != 8.0 {
			t.Errorf("after the end: %v", out)
		}
		if out := good(t, s, "cancel_task", with(object{})); out["status"] != "succeeded" {
			t.Errorf("cancel_task of one that has ended: %v", out)
		}
	})
}

func TestTaskIsCancelled(t *testing.T) {
	d := supervised(t, `
say status '{"phase":"agent_running"}'
read -r order
say done '{"status":"cancelled","failure_reason":"cancelled"}'
`)
	s := client{url: d.URL}.connect(t)
	id := begin(t, s)
	of := object{"session_id": id, "task_id": good(t, s, "start_task", object{"session_id": id, "prompt": "x"})["task_id"]}
	good(t, s, "cancel_task", of)
	of["wait"] = 50
	if out := good(t, s, "get_task", of); out["status"] != "cancelled" || out["reason"] != "cancelled" {
		t.Errorf("get_task = %v", out)
	}
	delete(of, "wait")
	if out := bad(t, s, "restore_task", of); !strings.Contains(out["error"].(string), "no checkpoint") {
		t.Errorf("restore_task = %v", out)
	}
}

// TestTaskThatSaysMuch: an answer has the newest events that fit.
func TestTaskThatSaysMuch(t *testing.T) {
	d := supervised(t, `
long=$(head -c 20000 /dev/zero | tr '\0' '<')
for n in $(seq 100); do say message "{\"role\":\"agent\",\"text\":\"$n $long\"}"; done
say done '{"status":"succeeded"}'
`)
	s := client{url: d.URL}.connect(t)
	id := begin(t, s)
	of := object{"session_id": id, "task_id": good(t, s, "start_task", object{"session_id": id, "prompt": "x"})["task_id"], "wait": 50}
	out := good(t, s, "get_task", of)
	events := out["events"].([]any)
	if n := len(events); n == 0 || n > 9 || out["omitted"] != float64(100-n) || !strings.HasPrefix(events[n-1].(object)["text"].(string), "100 ") {
		t.Errorf("%d events, omitted %v", n, out["omitted"])
	}
	if text := eventText(out); len(text) > 128<<10 {
		t.Errorf("%d bytes", len(text))
	}
}

func TestSessionWithAgentsNeedsTheirImage(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL}.connect(t)
	out := bad(t, s, "create_session", object{"agents": true})
	if !strings.Contains(out["error"].(string), "no image with coding agents") || !strings.Contains(out["hint"].(string), "cubby image build dev") {
		t.Errorf("create_session = %v", out)
	}
}
