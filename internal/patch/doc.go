// Package patch applies patches of Kubernetes' API to the JSON of objects: JSON patches (RFC
// 6902), merge patches (RFC 7386) and Kubernetes' strategic merge patches.
//
// Objects are map[string]any, with the numbers of package sigs.k8s.io/json: int64 if they are
// whole, otherwise float64. Arguments are not modified; the result may share parts with them.
//
// JSON patches and merge patches are applied by the library json-patch, as in API servers.
//
// A patch costs time and memory in proportion to its size and the object's. The bytes that
// operations copy are counted; above [MaxCopied] the error is [ErrTooLarge]. The caller has to
// limit the depth of both before decoding.
package patch
