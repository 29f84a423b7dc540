//go:build root

package durability_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// The states of a sandbox that a client is told of.
const (
	running  = "running"
	sleeping = "sleeping"
	stopped  = "stopped"
)

// box is what a client knows of a sandbox.
type box struct {
	id      string
	doubt   string // the act whose answer never came; "" when there is none
	status  string // as the last answer said
	evicted bool   // stopped in the place of a sleep: a use starts it
	cycle   string // the act that brought it to what it is and has not been compared yet; "" is none

	state     state
	rollbacks int       // acknowledged ones
	target    *snapshot // of a rollback that is in doubt, or of a restored create

	execs []*command // its own, in the order of their requests

	mu     sync.Mutex
	events []seen // in order, without gaps; guarded by mu
	known  int    // how many of them a check has had; guarded by mu
}

// becomes notes the status that an answer says. A sandbox that is stopped has no
// memory any more.
func (b *box) becomes(status string) {
	if status == stopped {
		b.state.memory = memory{}
	}
	b.status, b.evicted = status, false
}

// ends notes that an act was asked for that ends what runs.
func (b *box) ends() {
	for _, x := range b.execs {
		x.ended = true
	}
}

// snapshot is what a client knows of a snapshot.
type snapshot struct {
	name   string
	doubt  bool // its create or its removal was not answered
	memory bool // it has the memory beside the files
	state  state
}

// state is what a sandbox holds. A snapshot keeps it, a fork copies it, a rollback
// brings it back.
type state struct {
	files  map[string][]string // by path: the contents that it may have
	ran    ledger              // the lines of /workspace/ran
	shells map[string]*shell   // by session; they are on the disk
	memory memory
}

// shell is the variable RAN of a session.
type shell struct {
	ran ledger
	// haunted: a command of it runs in a copy of its sandbox without being one of
	// that sandbox's commands, and leaves the session as it knows it.
	haunted bool
}

// memory is what a stop takes.
type memory struct {
	up     bool     // the process that counts was there
	names  []string // that the process may have: of commands that started it
	counts ledger   // what it was told
	ticks  int      // that it has counted, at least
	kernel ledger   // the variable ran of the Python kernel
}

func newState() state {
	return state{files: map[string][]string{}, shells: map[string]*shell{}}
}

// copied is the state of a moment, beside which commands were running.
func (s state) copied(memory bool) state {
	c := newState()
	for path, may := range s.files {
		c.files[path] = slices.Clone(may)
	}
	c.ran = s.ran.copied()
	for name, sh := range s.shells {
		ran := sh.ran.copied()
		c.shells[name] = &shell{ran: ran, haunted: memory && (sh.haunted || ran.has(maybe))}
	}
	if memory {
		c.memory = s.memory
		c.memory.names = slices.Clone(s.memory.names)
		c.memory.counts, c.memory.kernel = s.memory.counts.copied(), s.memory.kernel.copied()
	}
	return c
}

// ledgers are all places that commands leave their tokens in, by what they are.
func (s *state) ledgers() map[string]*ledger {
	all := map[string]*ledger{"/workspace/ran": &s.ran, "the process": &s.memory.counts, "the kernel": &s.memory.kernel}
	for name, sh := range s.shells {
		all["session "+name] = &sh.ran
	}
	return all
}

// begins notes that a command was asked for.
func (s *state) begins(x *command) {
	s.ran = append(s.ran, &entry{command: x})
	switch {
	case x.starts:
		s.memory.names = append(s.memory.names, x.token)
		return
	case x.cell:
		s.memory.kernel = append(s.memory.kernel, &entry{command: x})
	case x.session != "":
		if s.shells[x.session] == nil {
			s.shells[x.session] = &shell{}
		}
		s.shells[x.session].ran = append(s.shells[x.session].ran, &entry{command: x})
	}
	s.memory.counts = append(s.memory.counts, &entry{command: x})
}

// settles notes how commands ended: nothing of them is open any more.
func (s *state) settles() {
	for _, l := range s.ledgers() {
		*l = slices.DeleteFunc(*l, func(e *entry) bool { return e.fate == open && e.seq == 0 })
		for _, e := range *l {
			if e.fate == open {
				e.fate = e.fateNow()
			}
		}
	}
}

// fate is whether a token is in a ledger.
type fate int

const (
	open  fate = iota // as the row of its command says
	there             // once
	maybe             // at most once
)

// entry is a command that leaves its token somewhere.
type entry struct {
	*command
	fate fate
}

func (e *entry) fateNow() fate {
	if e.exited {
		return there
	}
	return maybe
}

// ledger is what commands leave in one place, in the order of their requests.
type ledger []*entry

func (l ledger) copied() ledger {
	c := make(ledger, len(l))
	for i, e := range l {
		c[i] = &entry{e.command, e.fate}
		if e.fate == open {
			c[i].fate = e.fateNow()
		}
	}
	return c
}

func (l ledger) has(f fate) bool {
	return slices.ContainsFunc(l, func(e *entry) bool { return e.fate == f })
}

// compare says what is wrong with the tokens that a ledger has.
func (l ledger) compare(tokens []string) (wrong []string) {
	at := map[string]int{} // by token: where it is
	for i, token := range tokens {
		if _, twice := at[token]; twice {
			wrong = append(wrong, fmt.Sprintf("command %s ran twice", token))
		}
		at[token] = i
	}
	last := map[string]int{} // by session, or kernel: where that of the command before is
	for _, e := range l {
		line, found := at[e.token]
		delete(at, e.token)
		switch {
		case found && e.fate == open && e.seq == 0:
			wrong = append(wrong, fmt.Sprintf("command %s ran and has no row", e.token))
		case !found && (e.fate == there || e.fate == open && e.exited):
			wrong = append(wrong, fmt.Sprintf("command %s (%d) exited with its code and left nothing", e.token, e.seq))
		}
		if order := e.order(); found && order != "" {
			if before, ok := last[order]; ok && line < before {
				wrong = append(wrong, fmt.Sprintf("command %s of %s ran before one that was asked for earlier", e.token, order))
			}
			last[order] = line
		}
	}
	for _, token := range slices.Sorted(maps.Keys(at)) {
		wrong = append(wrong, fmt.Sprintf("%.100q is of no command that it had", token))
	}
	return wrong
}

// command is one exec whose output and effects are known beforehand.
type command struct {
	token   string
	session string
	cell    bool
	starts  bool // the process that counts
	lines   int
	code    int
	seq     int64 // 0 when the answer never came
	exited  bool  // by itself, with its code, as its row said
	ended   bool  // its sandbox was stopped, destroyed or rolled back after it was asked for
	counted bool  // in the figures

	mu     sync.Mutex
	read   int64 // bytes that a client has had; guarded by mu
	broken string
}

// order names what runs commands one after the other; "" is nothing.
func (c *command) order() string {
	if c.cell {
		return "the kernel"
	}
	return c.session
}

// output is all that it prints.
func (c *command) output() string {
	var b strings.Builder
	for i := 1; i <= c.lines; i++ {
		fmt.Fprintf(&b, "%s %d\n", c.token, i)
	}
	return b.String()
}

// request is what asks for it.
func (c *command) request(pause string) (path string, body map[string]any) {
	switch {
	case c.cell:
		return "/code", map[string]any{"language": "python", "code": fmt.Sprintf(cellCode, c.token, c.lines/2, c.lines, pause), "wait": false}
	case c.starts:
		return "/exec", map[string]any{"cmd": fmt.Sprintf(processScript, c.token, processCode), "wait_seconds": 600}
	}
	return "/exec", map[string]any{
		"cmd":  fmt.Sprintf(commandScript, c.token, c.lines/2, c.lines, pause, c.code),
		"wait": false, "session": c.session, "env": map[string]string{"SECRET": c.token},
	}
}

// commandScript leaves the token in a file, with the process that counts and in a
// variable, which count how often it ran, and has one program print two bursts with
// a pause between them: however it is ended, what it printed is a beginning of the
// whole. What the shell says of a program that is stopped is not counted.
const commandScript = `{ echo %[1]s >>/workspace/ran; { echo %[1]s >&3; read -r -u 3; } 3<>/dev/tcp/127.0.0.1/7000; RAN="$RAN %[1]s"; ` +
	`awk 'BEGIN { for (i = 1; i <= %[2]d; i++) print "%[1]s", i; fflush(); system("sleep %[4]s"); for (; i <= %[3]d; i++) print "%[1]s", i; exit %[5]d }'; } 2>/dev/null`

// cellCode is the same in a kernel, which keeps its connection to the process.
const cellCode = `try:
    note
except NameError:
    import socket, time
    ran = []
    wire = socket.create_connection(("127.0.0.1", 7000)).makefile("rw")
    def note(token):
        with open("/workspace/ran", "a") as f:
            f.write(token + "\n")
        wire.write(token + "\n")
        wire.flush()
        if wire.readline() != "ok\n":
            raise EOFError
        ran.append(token)
note("%[1]s")
for i in range(1, %[2]d + 1):
    print("%[1]s", i)
time.sleep(%[4]s)
for i in range(%[2]d + 1, %[3]d + 1):
    print("%[1]s", i)
`

// processScript starts the process that counts, unless it is there.
const processScript = `echo %[1]s >>/workspace/ran; there() { (: 3<>/dev/tcp/127.0.0.1/7000) 2>/dev/null; }; ` +
	`there || { python3 -c '%[2]s' %[1]s >/dev/null 2>&1 </dev/null & }; until there; do sleep 0.02; done; echo %[1]s 1`

// processCode keeps what it is told, and counts by itself, in memory.
const processCode = `import socket, sys, threading, time
name, ran, ticks = sys.argv[1], [], 0
def serve(c):
    with c, c.makefile("rw") as f:
        for line in f:
            if line == "?\n":
                f.write(" ".join([name, str(ticks), *ran]) + "\n")
            else:
                ran.append(line.strip())
                f.write("ok\n")
            f.flush()
def accept(s):
    while True:
        threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
threading.Thread(target=accept, args=(socket.create_server(("127.0.0.1", 7000)),), daemon=True).start()
while True:
    time.sleep(0.1)
    ticks += 1
`

// lookScript shows what the disk and the process have.
const lookScript = `cat ran 2>/dev/null; echo --; { echo '?' >&3; read -r line <&3; echo "$line"; } 2>/dev/null 3<>/dev/tcp/127.0.0.1/7000; true`

// lookCode shows what the kernel has.
const lookCode = `print(*globals().get("ran", []))`

// seen is an event as a client got it.
type seen struct {
	Cursor int64  `json:"cursor"`
	Kind   string `json:"kind"`
	Seq    int64  `json:"seq"`
	Status string `json:"status"`
}
