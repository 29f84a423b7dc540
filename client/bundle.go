package client

import "github.com/cubbyhq/cubby/client/display"

type (
	Bundle       = display.Bundle    // one value in several MIME types
	Display      = display.Item      // a value that a cell showed
	CodeError    = display.Exception // an exception in a cell
	ClearOutput  = display.Clear     // asks to remove what was shown
	InputRequest = display.Question  // a question of a cell
	KernelNotice = display.Notice    // about the kernel under a cell
)
