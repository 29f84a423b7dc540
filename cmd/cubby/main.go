// Command cubby is the daemon and its command line.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/cubbyhq/cubby/internal/cli"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	os.Exit(cli.Main(context.Background(), cli.Env{
		Args:    os.Args[1:],
		Environ: os.Environ(),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Signals: signals,
	}))
}
