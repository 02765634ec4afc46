package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/internal/retry"
)

// The kubelet's back-off for calls of webhooks.
const (
	tries            = 5
	reviewFirstRetry = 500 * time.Millisecond
	reviewLastRetry  = 1687500 * time.Microsecond // the fourth
	growth           = 1.5
	reviewJitter     = 0.2
)

// ReviewClient makes the calls of a Reviewer, without repeating them; the result of
// [Client.Once] implements it.
type ReviewClient interface {
	Create(ctx context.Context, r Resource, k Key, obj, into runtime.Object, subresources ...string) error
}

// Reviewer authenticates and authorizes requests at an API server: TokenReview and
// SubjectAccessReview, for the server of a node.
//
//	r, err := kubeapi.NewReviewer(client.Once()) // of an *kubeapi.Client
//	...
//	who := auth.Tokens(auth.TokensConfig{Reviewer: r})
//	may := auth.Access(auth.AccessConfig{Reviewer: r})
//
// It has no cache and no limits: both belong to the caller.
//
// # Faults
//
// Calls that fail because of the server or the network are tried five times within
// seconds, as long as ctx lasts. An error never means that a request is allowed.
//
// Its methods may be called from any goroutine.
type Reviewer struct{ client ReviewClient }

// NewReviewer returns a Reviewer. It makes no call.
func NewReviewer(c ReviewClient) (*Reviewer, error) {
	if c == nil {
		return nil, errors.New("credentials: a client is required")
	}
	return &Reviewer{client: c}, nil
}

// ErrTokenAudience means that the token is for another audience, or that the server
// does not say for which audience it is.
var ErrTokenAudience = errors.New("credentials: the token is for another audience")

// ReviewToken returns the owner of q's token. For an unknown token the result is not
// authenticated, and there is no error. If the server could not check the token, there is an
// error. The token must be for one of the audiences of q. If q has none, the token must be for
// the server's own audience. q is neither changed nor kept.
func (r *Reviewer) ReviewToken(ctx context.Context, q *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	got := &authenticationv1.TokenReview{}
	if err := r.create(ctx, TokenReviews, q, got); err != nil {
		return nil, fmt.Errorf("credentials: token: %w", err)
	}
	s, want := &got.Status, q.Spec.Audiences
	switch {
	case !s.Authenticated && s.Error != "":
		return nil, fmt.Errorf("credentials: token: %s", s.Error)
	case s.Authenticated && len(want) > 0 && !slices.ContainsFunc(s.Audiences, func(a string) bool { return slices.Contains(want, a) }):
		return nil, ErrTokenAudience
	}
	return got, nil
}

// ReviewAccess returns whether the user may do what q names. If the answer is neither
// allowed nor denied, the server has no opinion, and the request is not allowed. An
// answer that is both is an error. q is neither changed nor kept.
func (r *Reviewer) ReviewAccess(ctx context.Context, q *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	got := &authorizationv1.SubjectAccessReview{}
	if err := r.create(ctx, AccessReviews, q, got); err != nil {
		return nil, fmt.Errorf("credentials: access: %w", err)
	}
	if got.Status.Allowed && got.Status.Denied {
		return nil, errors.New("credentials: access: the server both allows and denies the request")
	}
	return got, nil
}

func (r *Reviewer) create(ctx context.Context, res Resource, ask, got runtime.Object) error {
	wait := retry.Backoff{First: reviewFirstRetry, Max: reviewLastRetry, Factor: growth, Jitter: reviewJitter}
	for try := 1; ; try++ {
		err := r.client.Create(ctx, res, Key{}, ask, got)
		if err == nil || try == tries || !transient(err) {
			return err
		}
		if !wait.Wait(ctx) {
			return err
		}
	}
}

// transient reports whether another attempt may succeed: the server did not answer, or reported an
// internal error.
func transient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}
