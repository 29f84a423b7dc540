package capability

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Need is what a call, or a part of one, needs of an agent.
type Need struct {
	Capability sandbox.AgentCapability // "": every agent has it
	// Without is what comes of it where the capability is missing, when the agent may
	// be asked all the same; "": it is not asked.
	Without string
}

// first is what the first version of the protocol had.
var first Need

func needs(c sandbox.AgentCapability) Need { return Need{Capability: c} }

// calls has every call of the guest service.
var calls = map[string]Need{
	guestv1connect.GuestServiceHelloProcedure:       first,
	guestv1connect.GuestServiceExecProcedure:        first,
	guestv1connect.GuestServiceAckExecProcedure:     first,
	guestv1connect.GuestServiceReleaseExecProcedure: first,
	guestv1connect.GuestServiceListExecsProcedure:   first,
	guestv1connect.GuestServiceSignalExecProcedure:  first,
	guestv1connect.GuestServiceWriteStdinProcedure:  first,
	guestv1connect.GuestServiceResizeExecProcedure:  first,
	guestv1connect.GuestServiceStatProcedure:        first,
	guestv1connect.GuestServiceListDirProcedure:     first,
	guestv1connect.GuestServiceMakeDirProcedure:     first,
	guestv1connect.GuestServiceRenameProcedure:      first,
	guestv1connect.GuestServiceRemoveProcedure:      first,
	guestv1connect.GuestServiceWatchProcedure:       first,
	guestv1connect.GuestServiceShutdownProcedure:    first,

	guestv1connect.GuestServiceUnkilledProcedure:        needs(sandbox.AgentUnkilled),
	guestv1connect.GuestServiceCreateKernelProcedure:    needs(sandbox.AgentKernels),
	guestv1connect.GuestServiceListKernelsProcedure:     needs(sandbox.AgentKernels),
	guestv1connect.GuestServiceInterruptKernelProcedure: needs(sandbox.AgentKernels),
	guestv1connect.GuestServiceRestartKernelProcedure:   needs(sandbox.AgentKernels),
	guestv1connect.GuestServiceDeleteKernelProcedure:    needs(sandbox.AgentKernels),
	guestv1connect.GuestServicePrepareKernelProcedure:   needs(sandbox.AgentPreparedKernels),
	guestv1connect.GuestServiceAskKernelProcedure:       needs(sandbox.AgentKernelQuestions),
	guestv1connect.GuestServiceListPortsProcedure:       needs(sandbox.AgentPorts),
	guestv1connect.GuestServiceIdentifyProcedure:        needs(sandbox.AgentIdentity),
	guestv1connect.GuestServicePauseTimersProcedure:     {sandbox.AgentTimers, "time limits count the sleep"},
	guestv1connect.GuestServiceResumeTimersProcedure:    {sandbox.AgentTimers, "nothing was paused"},
}

// fields has every field of a request that came later than the call. An agent that does
// not know it skips it.
var fields = map[protoreflect.FullName]Need{
	"cubby.guest.v1.ExecStart.cell":             needs(sandbox.AgentKernels),
	"cubby.guest.v1.ExecStart.service":          needs(sandbox.AgentServices),
	"cubby.guest.v1.IdentifyRequest.copied":     needs(sandbox.AgentCopies),
	"cubby.guest.v1.SignalExecRequest.patience": {sandbox.AgentUnkilled, "the agent goes on by itself and does not ask the host for help"},
}

// parameters has every parameter of the raw paths, as path?name.
var parameters = map[string]Need{
	"/v1/files?path": first, "/v1/files?offset": first, "/v1/files?length": first, "/v1/files?mode": first,
	"/v1/files?append": first, "/v1/files?parents": first, "/v1/files?user": first, "/v1/files?maker": first,
	"/v1/archive?path": first, "/v1/archive?user": first,

	"/v1/files?within":   needs(sandbox.AgentContainedPaths),
	"/v1/archive?within": needs(sandbox.AgentContainedPaths),
	"/v1/archive?system": needs(sandbox.AgentSystemArchives),
	"/v1/files?replaces": needs(sandbox.AgentConditionalWrites),
}

// words say to people what a capability is.
var words = map[sandbox.AgentCapability]string{
	sandbox.AgentKernels:           "kernels and cells",
	sandbox.AgentContainedPaths:    "reads that stay in a directory",
	sandbox.AgentUnkilled:          "kills with the host's help",
	sandbox.AgentKernelQuestions:   "completion and inspection of code",
	sandbox.AgentIdentity:          "another identity while it runs",
	sandbox.AgentTimers:            "time limits that stand still",
	sandbox.AgentPreparedKernels:   "kernels that are kept ready",
	sandbox.AgentCopies:            "copies of running sandboxes",
	sandbox.AgentPorts:             "lists of open ports",
	sandbox.AgentServices:          "services",
	sandbox.AgentSystemArchives:    "archives of the root filesystem",
	sandbox.AgentTasks:             "tasks of coding agents",
	sandbox.AgentConditionalWrites: "writes that name what they replace",
	sandbox.AgentHonestSyncs:       "a kernel that tells of what could not be written",
}
