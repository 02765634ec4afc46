// Package store keeps the objects of a node's own API over a restart.
//
// [Dir] has one YAML file for each object, which people may read and edit; watchers see what
// they save. [Memory] keeps nothing.
//
// # Durability
//
// When Put or Delete has returned nil, its effect survives a power failure. A crash at any
// moment leaves the old file or the new one, never a part.
//
// # Concurrent edits
//
// A writer passes the revision that it has read. If a person has saved the file since, the
// writer gets [ErrConflict] and the file is left alone; a person who saves after the writer
// wins as well. A program always learns that its write was lost, and editors warn that a file
// has changed.
//
// Tier: beta.
package store
