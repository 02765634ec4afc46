// Package reviews asks an API server who somebody is and what they may do:
// TokenReview and SubjectAccessReview, as the server of a node needs them.
//
//	r, err := reviews.New(client) // an *apiclient.Client
//	user, ok, err := r.Review(ctx, token, nil)
//	allowed, denied, reason, err := r.Access(ctx, authorizationv1.SubjectAccessReviewSpec{...})
//
// Nothing is remembered here: a cache belongs to whoever asks.
//
// # Faults
//
// Calls that fail because of the server or the way to it are tried again, five
// times within seconds, as long as ctx lasts. An error never means that
// somebody is let in.
package reviews

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/kubeapi/apiclient"
)

// The kubelet's back-off of its webhooks.
const (
	tries      = 5
	firstRetry = 500 * time.Millisecond
	growth     = 1.5
	jitter     = 0.2
)

// Client makes the calls; *apiclient.Client does.
type Client interface {
	Create(ctx context.Context, r apiclient.Resource, k apiclient.Key, obj, into runtime.Object, subresources ...string) error
}

// Reviewer asks. Its methods may be called from any goroutine.
type Reviewer struct{ client Client }

// New returns a Reviewer. Nothing is called.
func New(c Client) (*Reviewer, error) {
	if c == nil {
		return nil, errors.New("reviews: a client is required")
	}
	return &Reviewer{client: c}, nil
}

// ErrAudience means that the server does not say for whom the token is, or that
// it is for others.
var ErrAudience = errors.New("reviews: the token is for another audience")

// Review tells whose token it is. ok is false for one that the server does not
// know, which is no error. audiences are those that the token has to be for, one
// of them; none is the server's own.
func (r *Reviewer) Review(ctx context.Context, token string, audiences []string) (user authenticationv1.UserInfo, ok bool, err error) {
	ask := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}
	got := &authenticationv1.TokenReview{}
	if err := r.create(ctx, apiclient.TokenReviews, ask, got); err != nil {
		return user, false, fmt.Errorf("reviews: token: %w", err)
	}
	s := got.Status
	switch {
	case s.Error != "" && !s.Authenticated:
		return user, false, fmt.Errorf("reviews: token: %s", s.Error)
	case !s.Authenticated:
		return user, false, nil
	case len(audiences) > 0 && !slices.ContainsFunc(s.Audiences, func(a string) bool { return slices.Contains(audiences, a) }):
		return user, false, ErrAudience
	}
	return s.User, true, nil
}

// Access tells whether somebody may do something. Neither allowed nor denied is
// no opinion, which is a no. Both is a no.
func (r *Reviewer) Access(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (allowed, denied bool, reason string, err error) {
	got := &authorizationv1.SubjectAccessReview{}
	if err := r.create(ctx, apiclient.AccessReviews, &authorizationv1.SubjectAccessReview{Spec: spec}, got); err != nil {
		return false, false, "", fmt.Errorf("reviews: access: %w", err)
	}
	s := got.Status
	if s.Allowed && s.Denied {
		return false, true, s.Reason, errors.New("reviews: access: the server both allows and denies it")
	}
	return s.Allowed, s.Denied, s.Reason, nil
}

func (r *Reviewer) create(ctx context.Context, res apiclient.Resource, ask, got runtime.Object) error {
	wait := firstRetry
	for try := 1; ; try++ {
		err := r.client.Create(ctx, res, apiclient.Key{}, ask, got)
		if err == nil || try == tries || !transient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait + time.Duration(jitter*rand.Float64()*float64(wait))):
		}
		wait = time.Duration(growth * float64(wait))
	}
}

// transient tells that another try may have another result: the server did not
// answer, or said that the fault was its own.
func transient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}
