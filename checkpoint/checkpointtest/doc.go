// Package checkpointtest is a store in memory whose calls hang, take time or fail, for tests of
// code that keeps values in a checkpoint.Store.
//
//	disk := &checkpointtest.Disk{}
//	disk.Fault(checkpointtest.Fail(syscall.ENOSPC, "write"))
//
// Tier: kit.
package checkpointtest
