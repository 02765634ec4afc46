// Package logind reports the machine's shutdown through systemd-logind, over
// D-Bus, and has it wait by a delay lock (org.freedesktop.login1, "Inhibitor
// Locks").
//
//	machine := logind.New(logind.Config{})
//	m, err := shutdown.New(shutdown.Config{Machine: machine, ...})
//
// logind lets no lock delay a shutdown for more than InhibitDelayMaxSec, which
// is 5 s by default. If that is less than what the pods need, a file beside
// logind's configuration raises it, as the kubelet does. It never lowers it:
// another agent of the machine may need it.
//
// # Faults
//
// The lock outlasts a D-Bus connection that breaks, and is let go of when the
// agent ends in any way: it is a file descriptor. A connection that breaks
// ends Watch with an error; its caller comes again. What logind does while
// nobody is connected is found out then, from its PreparingForShutdown.
//
// Tier: beta.
package logind
