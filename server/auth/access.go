package auth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// AccessReviewer asks an API server whether a user may do something.
type AccessReviewer interface {
	// ReviewAccess returns the review with its status. It retries transient failures itself, must
	// return when ctx ends, and must not keep its arguments.
	ReviewAccess(ctx context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error)
}

// AccessReviewerFunc is a function that implements AccessReviewer.
type AccessReviewerFunc func(context.Context, *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error)

// ReviewAccess calls f.
func (f AccessReviewerFunc) ReviewAccess(ctx context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	return f(ctx, r)
}

// AccessConfig configures [Access]. Reviewer is required.
type AccessConfig struct {
	Reviewer AccessReviewer
	AllowTTL time.Duration // how long an allowed answer is cached; the default is 5 min, as in the kubelet
	DenyTTL  time.Duration // how long a denied answer is cached; the default is 30 s, as in the kubelet
}

// Limits of requests that wait for access reviews, in total and per user. The requests come from
// authenticated users, or from the anonymous one.
const (
	accessWaiting     = 1024
	accessWaitingUser = 256
)

const (
	// accessAnswers is the limit of cached answers, for allowed and for denied ones.
	accessAnswers = 4096
	// accessTimeout limits one review, including retries.
	accessTimeout = 15 * time.Second
)

// Access authorizes by the decision of an API server. If 1024 requests wait for a decision, or
// 256 of one user, further ones get an [ErrBusy].
func Access(c AccessConfig) Authorizer {
	for _, d := range []struct {
		field *time.Duration
		def   time.Duration
	}{{&c.AllowTTL, 5 * time.Minute}, {&c.DenyTTL, 30 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.def
		}
	}
	known := newCache[[sha256.Size]byte, decision](bounds{yes: accessAnswers, no: accessAnswers, waiting: accessWaiting, one: accessWaitingUser})
	return AuthorizerFunc(func(ctx context.Context, a Attributes) (bool, string, error) {
		spec := specOf(a)
		key, err := json.Marshal(spec) // sorts the keys of maps
		if err != nil {
			return false, "", err
		}
		d, err := known.get(ctx, spec.User, sha256.Sum256(key), accessTimeout, func(ctx context.Context) (verdict[decision], error) {
			d, err := c.review(ctx, spec)
			if d.allowed {
				return verdict[decision]{d, true, c.AllowTTL}, err
			}
			return verdict[decision]{d, false, c.DenyTTL}, err
		})
		if err != nil {
			return false, "", fmt.Errorf("review access: %w", err)
		}
		return d.allowed, d.reason, nil
	})
}

type decision struct {
	allowed bool
	reason  string
}

func specOf(a Attributes) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: a.Verb, Version: "v1", Resource: "nodes", Subresource: a.Subresource, Name: a.Node,
		},
	}
	if a.User == nil {
		return spec
	}
	spec.User, spec.UID, spec.Groups = a.User.Name, a.User.UID, a.User.Groups
	if len(a.User.Extra) > 0 {
		spec.Extra = map[string]authorizationv1.ExtraValue{}
		for k, v := range a.User.Extra {
			spec.Extra[k] = v
		}
	}
	return spec
}

func (c *AccessConfig) review(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (decision, error) {
	done, err := c.Reviewer.ReviewAccess(ctx, &authorizationv1.SubjectAccessReview{Spec: spec})
	if err != nil {
		return decision{}, err
	}
	return decision{done.Status.Allowed && !done.Status.Denied, done.Status.Reason}, nil
}
