package sandbox

// AgentProtocol is the version of the protocol between the daemon and the agent
// inside a sandbox: the first line of every connection of the agent says it, as
// CUBBY2. A sandbox keeps the agent that it was started with, so a daemon drives
// agents of the version before, too, and refuses all others. What a version
// adds, the agents before it do not know: they answer unknown calls with
// Unsupported, and skip unknown fields.
//
//   - 1: commands, files, kernels, the ways out.
//   - 2: the same; daemons refuse an agent of an unknown version by name. Later
//     agents of it can take an identity, be a copy of another sandbox's, and pause
//     their timers; of earlier ones a copy is refused, and their time limits count a
//     sleep.
const (
	AgentProtocol       = 2
	OldestAgentProtocol = AgentProtocol - 1
)
