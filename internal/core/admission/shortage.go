package admission

// Shortage is how short the host is of memory.
type Shortage int

const (
	NoShortage Shortage = iota
	// Short: no sandbox is created, started or woken, and those that nobody uses
	// are put to sleep.
	Short
	// Dire: so are those that nobody uses and that are to be kept running. What is
	// in use is never touched.
	Dire
)

// DecideShortage is the rule of the memory's bands. Free is what is left beside
// what sandboxes that come up will have taken soon; a sandbox needs room to come up
// in above the reserve.
func DecideShortage(free, reserve int64) Shortage {
	switch {
	case reserve <= 0 || free >= reserve+BootMemory:
		return NoShortage
	case free >= reserve/2:
		return Short
	}
	return Dire
}
