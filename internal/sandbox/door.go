package sandbox

// Door is how a stream to the outside was opened. The agent of a sandbox says
// which it is; no program inside can choose another one than it uses.
type Door string

const (
	// DoorProxy: a program connected to the proxy port and speaks to it, in
	// HTTP or SOCKS.
	DoorProxy Door = "proxy"
	// DoorConnect: a program connected to a host, and the agent took the
	// connection. It begins with a line "host:port"; the answer begins with
	// [ConnectGranted] when the connection to the host stands, and what follows
	// is its; or with [ConnectRefused], perhaps with something to tell the
	// program, and the end.
	DoorConnect Door = "connect"
	// DoorResolve: the agent asks which names the policy allows. Each line is a
	// name; each is answered with a line, "allow" and the name in normal form,
	// or "deny" and why, for people. A name that was allowed stays so until the
	// stream ends: it does when the policy changes.
	DoorResolve Door = "resolve"
)

// The first byte of an answer on a [DoorConnect].
const (
	ConnectGranted = '+'
	ConnectRefused = '-'
)

// The first word of an answer on a [DoorResolve].
const (
	ResolveAllow = "allow"
	ResolveDeny  = "deny"
)
