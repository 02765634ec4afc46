package podsync

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// TokenClient makes the calls; [kubeapi.Client] implements it.
type TokenClient interface {
	Create(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, obj, into runtime.Object, subresources ...string) error
}

// TokenRequester requests tokens of service accounts from an API server: it
// implements [plugins.TokenRequester] for a node of a cluster.
//
//	r, err := podsync.NewTokenRequester(client)
//	...
//	k, err := podsync.NewTokenKeeper(podsync.TokenKeeperConfig{Requester: r, Memory: store})
//
// A node may request only tokens that are bound to one of its pods, which the
// BoundObjectRef of the spec names. A TokenRequester stores no tokens and does not
// repeat calls; [plugins.TokenCache] does both. A [TokenKeeper] has such a cache, and
// also stores tokens over a restart.
//
// Its methods may be called from any goroutine.
type TokenRequester struct{ client TokenClient }

// NewTokenRequester returns a TokenRequester.
func NewTokenRequester(client TokenClient) (*TokenRequester, error) {
	if client == nil {
		return nil, errors.New("podsync: a client is required")
	}
	return &TokenRequester{client}, nil
}

// Request requests one token. The error wraps [plugins.ErrNoTokenRequest] if the
// server does not support such requests.
func (r *TokenRequester) Request(ctx context.Context, namespace, serviceAccount string, spec authenticationv1.TokenRequestSpec) (plugins.IssuedToken, error) {
	req := &authenticationv1.TokenRequest{Spec: *spec.DeepCopy()}
	err := r.client.Create(ctx, kubeapi.ServiceAccounts, kubeapi.Key{Namespace: namespace, Name: serviceAccount}, req, req, "token")
	switch {
	case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		// The answer is not from the service account API.
		return plugins.IssuedToken{}, fmt.Errorf("%w: %w", plugins.ErrNoTokenRequest, err)
	case err != nil:
		return plugins.IssuedToken{}, err
	case req.Status.Token == "":
		return plugins.IssuedToken{}, errors.New("the API server answered without a token")
	}
	return plugins.IssuedToken{
		Value: req.Status.Token, Expires: req.Status.ExpirationTimestamp.Time, Seconds: req.Spec.ExpirationSeconds,
	}, nil
}
