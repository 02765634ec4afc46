// Package patch applies the patches that clients of Kubernetes' API send to
// objects as JSON makes them: JSON patches (RFC 6902), merge patches (RFC 7386)
// and Kubernetes' strategic merge patches.
//
// Objects are map[string]any, with the numbers of package sigs.k8s.io/json: int64
// where they are whole, float64 elsewhere. Nothing handed in is changed; the
// result may share parts with it.
//
// JSON patches and merge patches are applied by json-patch, which API servers use, too.
//
// A patch costs time and memory in proportion to its size and the object's: what
// operations copy is counted, and [ErrTooLarge] once it comes to more than
// [MaxCopied]. The depth of both is for the caller to bound before they are
// decoded.
package patch
