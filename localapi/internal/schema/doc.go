// Package schema describes kinds of Kubernetes' API by their Go types: which
// fields there are, and how lists and maps of them are merged.
//
// [Of] describes one struct. [Merge] makes of some kinds what
// structured-merge-diff needs for server-side apply, and [Components] what
// OpenAPI v3 documents have of them, so that kubectl explains and merges them.
//
// Most is in the struct tags of the types. Markers that are comments alone in
// Kubernetes' sources, such as listType, are in a table here; a test compares the
// result with the schema that client-go was generated with.
//
// All functions are pure. What they return is shared and must not be changed.
package schema
