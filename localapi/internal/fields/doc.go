// Package fields notes who has which fields of an object, and merges what several
// programs apply to it (server-side apply), with structured-merge-diff.
//
// A [Manager] is for one kind, or one of its subresources. Objects handed in are not
// changed. The notes are the managedFields of Kubernetes' API, in its format: clients
// read and take them over.
//
// Kubernetes' own package for this is made for servers with several versions of a kind,
// and links a parser of OpenAPI documents; here is one version and a schema from Go
// types.
package fields
