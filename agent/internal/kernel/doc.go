// Package kernel sets the kernel parameters that a node needs, and the OOM score of the
// agent itself.
//
//	if err := kernel.Set(kernel.Sys, kernel.Tunables()); err != nil { ... }   // or:
//	if err := kernel.Check(kernel.Sys, kernel.Tunables()); err != nil { ... } // protectKernelDefaults
//	if err := kernel.SetOOMScore(kernel.OwnScore, -999); err != nil { ... }
//
// [Set] writes only parameters that differ, and continues after a failure. Its error
// and that of [Check] have a line for each wrong parameter. The package has no state
// and no goroutine; its functions may be called from any goroutine. Files of /proc/sys
// do not block.
package kernel
