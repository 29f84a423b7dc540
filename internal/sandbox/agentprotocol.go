package sandbox

import "slices"

// AgentProtocol is the version of the protocol between the daemon and the agent
// inside a sandbox: the first line of every connection of the agent says it, as
// CUBBY2. A sandbox keeps the agent that it was started with, so a daemon drives
// agents of the version before, too, and refuses all others.
//
//   - 1: commands, files, the ways out.
//   - 2: the same; daemons refuse an agent of an unknown version by name.
//
// What came to a version later is a capability, which the agent announces. An agent
// that lacks it does not know the call, or skips the field and does something else:
// it is never asked. See package capability.
const (
	AgentProtocol       = 2
	OldestAgentProtocol = AgentProtocol - 1
)

// AgentCapability is something that agents of a version of the protocol have or have not.
type AgentCapability string

// The capabilities. Each has entries in package capability's table.
const (
	AgentKernels           AgentCapability = "kernels"            // kernels and their cells
	AgentContainedPaths    AgentCapability = "contained-paths"    // reads that do not lead out of a directory
	AgentUnkilled          AgentCapability = "unkilled"           // which trees live on that are being killed
	AgentKernelQuestions   AgentCapability = "kernel-questions"   // completion, inspection, is-complete
	AgentIdentity          AgentCapability = "identity"           // another identity while it runs
	AgentTimers            AgentCapability = "timers"             // time limits that stand still
	AgentPreparedKernels   AgentCapability = "prepared-kernels"   // kernels that wait for the first to ask
	AgentCopies            AgentCapability = "copies"             // an agent whose memory began as another's
	AgentPorts             AgentCapability = "ports"              // which ports something listens on
	AgentServices          AgentCapability = "services"           // commands that are known as runs of services
	AgentSystemArchives    AgentCapability = "system-archives"    // the root filesystem as an archive
	AgentTasks             AgentCapability = "tasks"              // the supervisor of coding agents
	AgentConditionalWrites AgentCapability = "conditional-writes" // writes that name what they replace
	AgentHonestSyncs       AgentCapability = "honest-syncs"       // a kernel that tells the agent of what could not be written
)

var agentCapabilities = []AgentCapability{
	AgentKernels, AgentContainedPaths, AgentUnkilled, AgentKernelQuestions, AgentIdentity, AgentTimers, AgentPreparedKernels,
	AgentCopies, AgentPorts, AgentServices, AgentSystemArchives, AgentTasks, AgentConditionalWrites, AgentHonestSyncs,
}

// AgentCapabilities returns those of the agent of this build, all that there are.
func AgentCapabilities() []AgentCapability { return slices.Clone(agentCapabilities) }
