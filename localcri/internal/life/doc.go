// Package life decides what may happen to a container and to a sandbox, and what follows.
//
// [Container] and [Sandbox] are state machines. Only their method Step changes them: it takes an
// [Event] and returns the [Effect]s that the caller has to begin, or a [*Refused] and no change.
// The package has no lock, no clock and no I/O. The same events always give the same effects.
//
// What was asked for only grows, see [Want]: once a stop was asked for, no start begins, and what
// is to be removed goes as soon as nothing of it runs, whoever asked first.
//
// The tables of all phases and events are in testdata.
package life
