// Package auth authenticates requests to a node, and authorizes them.
//
// An [Authenticator] turns a request into a [User]: by a client certificate
// ([ClientCerts]), by a bearer token that an API server reviews ([Tokens]), or
// as nobody ([Anonymous]); [FirstOf] joins them. An [Authorizer] decides about
// [Attributes]: [AlwaysAllow], or an API server's SubjectAccessReview
// ([Access]).
//
//	authn := auth.FirstOf(
//		auth.ClientCerts(pool),
//		auth.Tokens(auth.TokensConfig{Reviewer: reviewer}),
//	)
//
// Reviews are remembered as long as the kubelet remembers them, in a bounded
// number, those that let nobody in apart from the others; equal questions asked
// at the same time go out once; at most 32 go out at a time. A review that fails
// is not remembered. As many requests as [Tokens] and [Access] say wait for
// reviews, and more are refused with an [ErrBusy]: an API server that hangs
// costs those who need it. Certificates need nobody, and come first.
//
// Tier: beta.
package auth
