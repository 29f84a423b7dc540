package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestCodePromptAsksTheKernel sits before a terminal whose daemon can ask
// kernels.
func TestCodePromptAsksTheKernel(t *testing.T) {
	k := newKernelStub(t)
	hung := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(hung) })
	t.Cleanup(goOn) // before the daemon's end, which waits for the answer
	k.questions = func(kind string, asked map[string]any) string {
		code := asked["code"].(string)
		switch kind {
		case "is-complete":
			switch {
			case strings.HasSuffix(strings.TrimRight(code, "\n"), "more"):
				return `{"status":"incomplete","indent":""}`
			case strings.HasPrefix(code, "perhaps"):
				return `{"status":"unknown","indent":""}`
			}
			return `{"status":"complete","indent":""}`
		case "inspect":
			if code == "len" {
				return fmt.Sprintf(`{"found":true,"data":{"text/plain":"Signature: len(obj), detail %v\n"}}`, asked["detail_level"])
			}
			return `{"found":false,"data":{}}`
		}
		at := int(asked["cursor_pos"].(float64))
		head := string([]rune(code)[:at])
		word := head[strings.LastIndexAny(head, " .\n")+1:]
		if word == "hang" {
			<-hung
		}
		matches := []string{}
		for _, name := range []string{"alpha", "alphabet", "größe", "odd\x1b[2J", "many1", "many2"} {
			if strings.HasPrefix(name, word) {
				matches = append(matches, name)
			}
		}
		answer, _ := json.Marshal(map[string]any{
			"matches": matches, "cursor_start": at - len([]rune(word)), "cursor_end": at, "truncated": word == "m",
		})
		return string(answer)
	}
	s := sitDown(t, k, t.TempDir())
	s.wait("Tab completes")
	s.wait(">>> ")

	// As far as it is certain; then what there is, and the line stays.
	s.enter("al\t", "alpha")
	s.enter("\t", "alpha     alphabet\r\n>>> alpha")
	s.enter("b\t\r", `ran "alphabet"`, ">>> ")
	// Behind other characters and in the middle, on a later line of a cell.
	s.enter("'π' more\r", "... ")
	s.enter("ä; gr + 1\x1b[D\x1b[D\x1b[D\x1b[D\t\r", `ran "'π' more\nä; größe + 1"`, ">>> ")
	// What a terminal would act upon is not typed, and a part of the matches is
	// not all that there is.
	s.enter("odd\t1\r", `ran "odd1"`, ">>> ")
	s.enter("m\t", "many1  many2\r\n… and more\r\n>>> m")
	s.typed("\x7f")
	// Ctrl-C ends the waiting.
	s.typed("hang\t")
	s.typed("\x03")
	s.enter("x\r", `ran "hangx"`)
	goOn()
	s.wait(">>> ")

	// Where the kernel cannot say, a backslash says it.
	s.enter("perhaps \\\r", "... ")
	s.enter("not\r", `ran "perhaps \\\nnot"`, ">>> ")
	s.enter("perhaps(\r", `ran "perhaps("`, ">>> ")
	// Two empty lines end what the kernel wants more of.
	s.enter("more\r", "... ")
	s.enter("\r\r", `ran "more\n\n"`, ">>> ")

	for line, want := range map[string]string{"?len": "detail <nil>", "len?": "detail <nil>", "len??": "detail 1", "?nobody": "knows nothing of nobody"} {
		s.enter(line+"\r", want, ">>> ")
	}
	s.enter("quit()\r", "the kernel lives on with its state; `cubby kernels rm box main` ends it")
	if code := s.exit(); code != 0 {
		t.Errorf("quit() exits with %d", code)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.requests {
		if code := r["code"].(string); strings.Contains(code, "?") || strings.Contains(code, "quit") {
			t.Errorf("the kernel was given %q to run", code)
		}
	}
}
