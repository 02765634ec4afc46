// Package schema describes kinds of Kubernetes' API by their Go types: their fields, and how
// lists and maps are merged.
//
// [Of] describes one struct. [Merge] converts kinds to the schema that structured-merge-diff
// needs for server-side apply. [Components] converts them to schemas of OpenAPI v3, with which
// kubectl explains and merges them.
//
// Most information comes from struct tags. Markers that are only comments in Kubernetes' sources,
// such as listType, are in a table here; a test compares the result with client-go's generated
// schema.
//
// Functions have no side effects. Their results are shared and must not be modified.
package schema
