// Package kernel sets what a node wants of its kernel: parameters that pods count on,
// and how late the agent itself is killed when memory is short.
//
//	if err := kernel.Set(kernel.Sys, kernel.Tunables()); err != nil { ... }   // or:
//	if err := kernel.Check(kernel.Sys, kernel.Tunables()); err != nil { ... } // protectKernelDefaults
//	if err := kernel.SetOOMScore(kernel.OwnScore, -999); err != nil { ... }
//
// [Set] writes only what differs, and goes on after a failure; its error and that of
// [Check] have a line for each parameter. There is no state and no goroutine; calls
// may come from anywhere. Files of /proc/sys do not block.
package kernel
