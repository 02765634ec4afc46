// Package life decides what may happen to a container or sandbox, and what has to follow.
//
// [Container] and [Sandbox] are state machines. Only their method Step changes them: it takes an
// [Event] and returns the [Effect]s that the caller has to begin, or a [*Refused] without any
// change. The package has no lock, no clock and no I/O. The same events always produce the same
// effects.
//
// Requests only become stronger; see [Want]. After a request to stop, nothing is started. After a
// request to remove, the container or sandbox is removed as soon as none of its processes runs,
// even if the caller has given up.
//
// The tables of all phases and events are in testdata.
package life
