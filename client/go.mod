module github.com/cubbyhq/cubby/client

go 1.24.0

require (
	github.com/coder/websocket v1.8.15
	github.com/google/go-cmp v0.7.0
	go.uber.org/goleak v1.3.0
)
