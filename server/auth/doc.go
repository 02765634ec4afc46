// Package auth authenticates requests to a node, and authorizes them.
//
// An [Authenticator] returns the [User] of a request: by a client certificate ([ClientCerts]), by
// a bearer token that an API server reviews ([Tokens]), or the anonymous user ([Anonymous]);
// [FirstOf] combines them. An [Authorizer] decides about [Attributes]: [AlwaysAllow], or an API
// server's SubjectAccessReview ([Access]).
//
//	authn := auth.FirstOf(
//		auth.ClientCerts(pool),
//		auth.Tokens(auth.TokensConfig{Reviewer: reviewer}),
//	)
//
// Reviews are cached as long as in the kubelet. The number of cached reviews is limited,
// separately for positive and negative ones. Equal concurrent reviews share one call; at most 32
// calls run at a time. A failed review is not cached. [Tokens] and [Access] limit the requests
// that wait for reviews, and refuse others with an [ErrBusy], so that an API server that hangs
// affects only requests that need it. Certificates need no review, and are checked first.
//
// Tier: beta.
package auth
