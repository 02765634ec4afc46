package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/nodewright/nodewright/internal/source"
)

// TokenReviewer asks an API server for the owner of a token.
type TokenReviewer interface {
	// ReviewToken returns the review with its status, or an error if the token is not for one of
	// the requested audiences. It retries transient failures itself, must return when ctx ends,
	// and must not keep its arguments.
	ReviewToken(ctx context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)
}

// TokenReviewerFunc is a function that implements TokenReviewer.
type TokenReviewerFunc func(context.Context, *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)

// ReviewToken calls f.
func (f TokenReviewerFunc) ReviewToken(ctx context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	return f(ctx, r)
}

// TokensConfig configures [Tokens]. Reviewer is required.
type TokensConfig struct {
	Reviewer  TokenReviewer
	TTL       time.Duration // how long an answer is cached; the default is 2 min, as in the kubelet
	Audiences []string      // accepted audiences of the token; if nil, the API server's own audience
}

// tokenTimeout limits one review.
const tokenTimeout = 10 * time.Second

// errToken is the error for an invalid token.
var errToken = errors.New("bearer token: not valid")

// maxToken is the longest token that is reviewed, in bytes. A service account's token has about 1
// KiB.
const maxToken = 64 << 10

// Limits of cached answers: for valid tokens, and for invalid ones.
const (
	tokensKept        = 4096
	invalidTokensKept = tokensKept / 4
)

// Limits of requests that wait for token reviews, in total and per host, so that a host with
// invalid tokens hardly affects others.
const (
	tokensWaiting     = 512
	tokensWaitingHost = 64
)

// Tokens authenticates users by the bearer token of their request. It stores only the SHA-256 of
// a token. If 512 requests wait for a review, or 64 from one host (with IPv6, from one /64),
// further ones get an [ErrBusy].
func Tokens(c TokensConfig) Authenticator {
	if c.TTL == 0 {
		c.TTL = 2 * time.Minute
	}
	known := newCache[[sha256.Size]byte, *User](bounds{yes: tokensKept, no: invalidTokensKept, waiting: tokensWaiting, one: tokensWaitingHost})
	return AuthenticatorFunc(func(r *http.Request) (*User, error) {
		token := bearer(r)
		if token == "" {
			return nil, nil
		}
		if len(token) > maxToken {
			return nil, fmt.Errorf("bearer token: %d bytes; want at most %d", len(token), maxToken)
		}
		u, err := known.get(r.Context(), source.Of(r.RemoteAddr), sha256.Sum256([]byte(token)), tokenTimeout, func(ctx context.Context) (verdict[*User], error) {
			u, err := c.review(ctx, token)
			return verdict[*User]{u, u != nil, c.TTL}, err
		})
		if err != nil {
			return nil, fmt.Errorf("bearer token: %w", err)
		}
		if u == nil {
			return nil, errToken
		}
		return u, nil
	})
}

// review asks the API server for the user of a token. It returns nil for an invalid token.
func (c *TokensConfig) review(ctx context.Context, token string) (*User, error) {
	done, err := c.Reviewer.ReviewToken(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: c.Audiences},
	})
	if err != nil {
		return nil, err
	}
	st := &done.Status
	if !st.Authenticated {
		return nil, nil
	}
	u := &User{Name: st.User.Username, UID: st.User.UID, Groups: st.User.Groups}
	if len(st.User.Extra) > 0 {
		u.Extra = map[string][]string{}
		for k, v := range st.User.Extra {
			u.Extra[k] = v
		}
	}
	return u, nil
}

// bearer returns the token of a request, or "".
func bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
