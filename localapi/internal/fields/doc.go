// Package fields tracks which client owns which fields of an object, and merges server-side
// applies of several clients, with structured-merge-diff.
//
// A [Manager] is for one kind, or one of its subresources. Objects passed in are not modified.
// The result has the format of managedFields in Kubernetes' API, so that clients can read and
// adopt it.
//
// Kubernetes' own package for this is for servers with several versions of a kind, and depends on
// a parser of OpenAPI documents. Here there is one version, with a schema from Go types.
package fields
