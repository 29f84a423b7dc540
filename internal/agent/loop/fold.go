package loop

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/conversation"
)

// A conversation that is longer than the model takes in is folded: the state stays as
// it is, and the model is shown the newest turns whole and of the older ones the
// first words of what was said. Each time that is not enough, less is shown whole.

// foldKey is where the metadata of an answer says how far was folded for it: the next
// run of the thread begins there.
const foldKey = "folded"

const (
	foldedText = 300     // characters that stay of what was said
	foldedTool = 1 << 10 // of what a tool gave, in turns that are shown
	digestSize = 8 << 10 // of all that is folded
)

// foldOf is how far the state was folded for its newest answer.
func foldOf(state []conversation.Entry) int {
	for i := len(state) - 1; i >= 0; i-- {
		if m := state[i].Message; m.Type == conversation.AI {
			n := 0
			_ = json.Unmarshal(m.ResponseMetadata[foldKey], &n) // of what is none, 0
			return min(max(n, 0), maxFolds)
		}
	}
	return 0
}

// turns cuts messages where a person speaks.
func turns(list []conversation.Message) [][]conversation.Message {
	var out [][]conversation.Message
	for _, m := range list {
		if m.Type == conversation.System {
			continue
		}
		if m.Type == conversation.Human || len(out) == 0 {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], m)
	}
	return out
}

// whole is how many of n turns are shown.
func (r *run) whole(n int) int {
	if r.fold == 0 {
		return n
	}
	return max(1, n>>r.fold)
}

// folded is how many turns the model is not shown.
func (r *run) folded() int {
	n := len(turns(conversation.MessagesOf(r.state)))
	return n - r.whole(n)
}

// shown is what the model is shown of the state, and the older turns in short.
func (r *run) shown() (list []conversation.Message, earlier string) {
	all := turns(conversation.MessagesOf(r.state))
	first := len(all) - r.whole(len(all))
	for i, turn := range all[first:] {
		newest := first+i == len(all)-1
		for k, m := range turn {
			// The newest turn may itself be too long: its last results stay.
			if r.fold > 0 && m.Type == conversation.Tool && (!newest || k < len(turn)-1-maxFolds+r.fold) {
				m.Content = conversation.Text(short(conversation.TextOf(m.Content), foldedTool>>(r.fold-1)))
			}
			list = append(list, m)
		}
	}
	if first == 0 {
		return list, ""
	}
	return list, digest(all[:first])
}

// digest is what older turns were about, of the newest ones most.
func digest(old [][]conversation.Message) string {
	var lines []string
	size := 0
	for i := len(old) - 1; i >= 0 && size < digestSize; i-- {
		var said []string
		for _, m := range old[i] {
			text := short(strings.TrimSpace(conversation.TextOf(m.Content)), foldedText)
			if text == "" || m.Type == conversation.Tool {
				continue
			}
			who := "You"
			if m.Type == conversation.Human {
				who = "User"
			}
			said = append(said, who+": "+text)
		}
		turn := strings.Join(said, "\n")
		size += len(turn)
		lines = append([]string{turn}, lines...)
	}
	return fmt.Sprintf("This conversation is longer than you can be shown. Its first %d turns are left out; this is how the last of those went:\n\n%s",
		len(old), strings.Join(lines, "\n"))
}

// short is the beginning of a text.
func short(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most]) + "…"
}
