// Package tokenrequest asks an API server for the tokens of service accounts:
// the [content.TokenRequester] of a node of a cluster.
//
//	r, err := tokenrequest.New(client)
//	...
//	k, err := tokenrequest.NewKeeper(tokenrequest.KeeperConfig{Requester: r, Memory: store})
//
// A node may ask for tokens that are bound to one of its pods, and no others:
// the spec's BoundObjectRef says which. A [Requester] keeps nothing and tries
// nothing again; [content.TokenCache] does both, and a [Keeper], which has one, does so
// over a restart.
package tokenrequest

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/kubeapi/apiclient"
	"github.com/nodewright/nodewright/volumemgr/content"
)

// Client makes the calls: an [apiclient.Client].
type Client interface {
	Create(ctx context.Context, r apiclient.Resource, k apiclient.Key, obj, into runtime.Object, subresources ...string) error
}

// Requester asks for tokens. Its methods may be called from any goroutine.
type Requester struct{ client Client }

// New returns a Requester.
func New(client Client) (*Requester, error) {
	if client == nil {
		return nil, errors.New("tokenrequest: a client is required")
	}
	return &Requester{client}, nil
}

// Request asks for one token. The error has [content.ErrNoTokenRequest] in its tree
// if the server knows no such requests.
func (r *Requester) Request(ctx context.Context, namespace, serviceAccount string, spec authenticationv1.TokenRequestSpec) (content.IssuedToken, error) {
	req := &authenticationv1.TokenRequest{Spec: *spec.DeepCopy()}
	err := r.client.Create(ctx, apiclient.ServiceAccounts, apiclient.Key{Namespace: namespace, Name: serviceAccount}, req, req, "token")
	switch {
	case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		// The answer came from no handler of service accounts.
		return content.IssuedToken{}, fmt.Errorf("%w: %w", content.ErrNoTokenRequest, err)
	case err != nil:
		return content.IssuedToken{}, err
	case req.Status.Token == "":
		return content.IssuedToken{}, errors.New("the API server answered without a token")
	}
	return content.IssuedToken{
		Value: req.Status.Token, Expires: req.Status.ExpirationTimestamp.Time, Seconds: req.Spec.ExpirationSeconds,
	}, nil
}
