// Package logind reports the machine's shutdown through systemd-logind, over D-Bus,
// and delays it by a delay lock (org.freedesktop.login1, "Inhibitor Locks").
//
//	machine := logind.New(logind.Config{})
//	m, err := shutdown.New(shutdown.Config{Machine: machine, ...})
//
// logind limits the delay of a shutdown to InhibitDelayMaxSec, which is 5 s by
// default. If the pods need more, a file in logind's configuration directory raises
// it, as in the kubelet. It is never lowered: another agent of the machine may need
// it.
//
// # Faults
//
// The lock is a file descriptor: it survives a broken D-Bus connection, and is
// released when the agent ends in any way. A broken connection ends Watch with an
// error; its caller calls it again. Watch then reads logind's PreparingForShutdown,
// to detect changes without a connection.
//
// Tier: beta.
package logind
