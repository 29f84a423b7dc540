//go:build root

package agent_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/cubbyhq/cubby/internal/store/postgrestest"
)

// TestOnPostgreSQL is what an agent promises, over the other database.
func TestOnPostgreSQL(t *testing.T) {
	postgrestest.New(t) // keeps the server for all subtests
	newDatabase = postgrestest.New
	defer func() { newDatabase = nil }()
	shared := map[string]func(*testing.T){
		"TestConversation":                           TestConversation,
		"TestBranches":                               TestBranches,
		"TestChangeState":                            TestChangeState,
		"TestFailedRun":                              TestFailedRun,
		"TestApproval":                               TestApproval,
		"TestRunWithoutThread":                       TestRunWithoutThread,
		"TestDeleteEndsAll":                          TestDeleteEndsAll,
		"TestCancel":                                 TestCancel,
		"TestCanceledInTheQueue":                     TestCanceledInTheQueue,
		"TestRollbackFromAnOlderCheckpoint":          TestRollbackFromAnOlderCheckpoint,
		"TestNextDaemonGoesOn":                       TestNextDaemonGoesOn,
		"TestToolsAreNotRunTwice":                    TestToolsAreNotRunTwice,
		"TestSweepKeepsWhatNobodyBounds":             TestSweepKeepsWhatNobodyBounds,
		"TestCrowd":                                  TestCrowd,
		"TestWithoutAnAnswerTheQuestionIsAskedAgain": TestWithoutAnAnswerTheQuestionIsAskedAgain,
	}
	for _, name := range slices.Sorted(maps.Keys(shared)) {
		t.Run(name, shared[name])
	}
}
