// Package objects has all objects of an API in memory, and is the only way to change them.
//
// A [Change] says what an actor wants to do with one object. A function without side effects
// decides about it: reject it, or which new state to store. [Turn.Apply] carries out the
// decision: first the file, then memory, where the change gets its own revision. Changes that
// have to be on disk need the [Turn], a write lock, so they are made one after the other. Changes
// that are only in memory, such as the status of a running pod, use [Set.Note] and never wait for
// the disk.
//
// # States
//
// An object is Absent, Live, or Ending, which means that it has a deletionTimestamp. Its Origin
// is Owned if it has its own file, Mirrored if it comes from another source's manifest and is
// read-only, or Fleeting if it is only in memory. An Ending object without finalizers and with a
// grace period of zero becomes Absent.
//
// # Ownership
//
// Objects in the [Set] are shared and never modified. A Set has no goroutine. Its [Config]
// functions are called without a lock, except Config.New.
package objects
