// Package ocispec creates the OCI runtime configuration of a container (config.json, Open
// Container Initiative Runtime Specification 1.3) from the CRI request, the image's configuration
// and the machine's abilities.
//
// It is pure: all facts are in the [Input], it reads no files, and the same input produces the
// same configuration. A request that cannot be fulfilled is rejected with a gRPC status that
// names the field, its value and what is allowed: InvalidArgument for what no machine can do,
// FailedPrecondition for what this one cannot.
//
// Tier: beta.
package ocispec
