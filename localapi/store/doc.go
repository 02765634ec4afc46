// Package store stores the objects of a node's own API over a restart.
//
// [Dir] has one YAML file for each object. People may read and edit the files; watchers are
// notified of their changes. [Memory] keeps objects in memory only.
//
// # Durability
//
// When Put or Delete has returned nil, its effect survives a power failure. A crash at any moment
// leaves the old file or the new one, never a part.
//
// # Concurrent edits
//
// A writer passes the revision that it has read. If a person has saved the file since, the writer
// gets [ErrConflict] and the file is not changed. If a person saves the file after the writer,
// the person's version stays. So a program always learns that its write was rejected, and editors
// warn that a file has changed.
//
// Tier: beta.
package store
