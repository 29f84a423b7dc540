package daemon

import (
	"log/slog"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/telemetry"
)

// wantedOpenFiles is enough for a thousand sandboxes with their channels.
const wantedOpenFiles = 1 << 20

// raiseOpenFiles raises both limits of open files as far as this process may.
func raiseOpenFiles(log *slog.Logger) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur >= wantedOpenFiles {
		return
	}
	wanted := unix.Rlimit{Cur: wantedOpenFiles, Max: max(limit.Max, wantedOpenFiles)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &wanted) == nil {
		return
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		log.Warn("the limit of open files stays low", "limit", limit.Cur, telemetry.KeyErr, err)
	}
}

// notifier tells systemd how the daemon is; "" without systemd.
type notifier string

// takeNotifier takes the variable out of the environment: the OCI runtimes
// would see it and wait for a message from inside the sandbox.
func takeNotifier() notifier {
	socket := os.Getenv("NOTIFY_SOCKET")
	_ = os.Unsetenv("NOTIFY_SOCKET") // cannot fail for this name
	return notifier(socket)
}

func (n notifier) send(log *slog.Logger, state string) {
	if n == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: string(n), Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close() // a datagram has left, or err says why not
	}
	if err != nil {
		log.Warn("systemd was not told", "state", state, telemetry.KeyErr, err)
	}
}
