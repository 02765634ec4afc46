// Package objects has all objects of an API in memory, and is the only way to change them.
//
// A [Change] says who wants what of one object. A pure function decides what becomes of it: refuse, keep, write,
// remove. [Turn.Apply] carries that out: first the file, then memory, where the change has a revision of its own.
// Changes of one object follow each other, as whoever makes one that has to be on the disk holds the [Turn]. Those that
// are in memory alone, such as the status of a pod that runs, go by [Set.Note] and never wait for the disk.
//
// # States
//
// An object is Absent, Live, or Ending: it has a deletionTimestamp. Its Origin says whose it is: Owned objects have a file
// of their own, Mirrored ones come from somebody else's manifest and can only be read, Fleeting ones are in memory alone.
// An Ending object without finalizers whose grace period is zero is Absent.
//
// # Ownership
//
// Objects are shared and never changed once they are in the [Set]. A Set has no goroutine; its [Config] functions are
// called without any lock held, except Config.New.
package objects
