// Package sysctl sets the kernel parameters that pods rely on, and the OOM score of the agent's
// process.
//
//	if err := sysctl.Set(sysctl.Sys, sysctl.Tunables()); err != nil { ... }   // or:
//	if err := sysctl.Check(sysctl.Sys, sysctl.Tunables()); err != nil { ... } // protectKernelDefaults
//	if err := sysctl.SetOOMScore(sysctl.OwnScore, -999); err != nil { ... }
//
// [Set] writes only parameters that differ, and continues after a failure. The errors of [Set] and
// [Check] have a line for each parameter. Functions may be called from any goroutine. Files of
// /proc/sys do not block.
package sysctl
