// Package swap is the part of a node agent that decides what containers may have of
// the node's swap (KEP-2400).
//
//	p, err := swap.New(swap.Config{Allowed: true, Limited: true, Log: log})
//
// [New] refuses a machine with swap, by the names of its devices and files, unless
// Config.Allowed says that it may have some. Where there may be swap, containers
// have none of it (memory.swap.max is 0), or, if Config.Limited says so, those of
// Burstable pods a share: as large a part of the node's swap as the container
// requests of the node's memory. Package podspec has the formula.
//
// # Hooks
//
// Prepare finds out whether this machine's cgroups limit swap, until they are known
// to; where they do not, nothing is asked of the runtime, which would fail. Compile
// sets the node's swap for package podspec. Run reports once, by an event of the
// node, if volumes in memory may come to lie on a disk.
//
// # Ownership and faults
//
// New reads /proc/swaps and /proc/meminfo and nothing else. Swap that is switched on later is
// not refused, but limited as the rest. Where cgroups are those of v1, nobody has
// swap, whatever Config.Limited says, with a line in the log.
//
// Tier: beta.
package swap
