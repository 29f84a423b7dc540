package sse

import (
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Outputs sends the output of a command: events stdout and stderr of text with
// whole characters, and rich of whole lines. The id of each is the offset to
// resume after.
type Outputs struct {
	stream *Stream
	text   joiner
	rich   richLines
}

// NewOutputs returns the output of a command that is sent by s.
func NewOutputs(s *Stream) *Outputs { return &Outputs{stream: s} }

// Add sends o, but for the beginning of a character or a rich line, which waits
// for the rest.
func (p *Outputs) Add(o sandbox.Output) error {
	if o.Stream != sandbox.Rich {
		return p.send(p.text.add(o))
	}
	if err := p.Flush(); err != nil {
		return err
	}
	for _, line := range p.rich.add(o) {
		if err := p.stream.Send(line.Next, "rich", line.JSON); err != nil {
			return err
		}
	}
	return nil
}

// Flush sends the beginning of a character that waits for the rest.
func (p *Outputs) Flush() error { return p.send(p.text.flush()) }

// piece is the data of a stdout or stderr event.
type piece struct {
	Data     string `json:"data"`
	Encoding string `json:"encoding"`
	Offset   int64  `json:"offset"`
}

func (p *Outputs) send(list []sandbox.Output) error {
	for _, o := range list {
		e := piece{Encoding: "utf-8", Offset: o.Offset}
		var encoding string
		if e.Data, encoding = front.EncodeText(o.Data); encoding != "" {
			e.Encoding = encoding
		}
		if err := p.stream.Send(o.Offset+int64(len(o.Data)), o.Stream.String(), e); err != nil {
			return err
		}
	}
	return nil
}
