package auth

import (
	"context"
	"errors"
	"net/http"
	"slices"
)

// User is the sender of a request.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// The names that Kubernetes gives to unauthenticated and authenticated users
// (k8s.io/apiserver's user package).
const (
	AnonymousUser        = "system:anonymous"
	unauthenticatedGroup = "system:unauthenticated"
	authenticatedGroup   = "system:authenticated"
)

// Authenticator determines the user of a request. A nil User without an error means that the
// request has no credentials for this Authenticator. An error means that the credentials are
// invalid, or could not be checked. It may be called concurrently.
type Authenticator interface {
	Authenticate(r *http.Request) (*User, error)
}

// AuthenticatorFunc is a function that implements Authenticator.
type AuthenticatorFunc func(r *http.Request) (*User, error)

// Authenticate calls f.
func (f AuthenticatorFunc) Authenticate(r *http.Request) (*User, error) { return f(r) }

// FirstOf returns an Authenticator that calls each Authenticator of the list until one returns a
// user. It returns their errors only if none of them returns a user.
func FirstOf(list ...Authenticator) Authenticator {
	return AuthenticatorFunc(func(r *http.Request) (*User, error) {
		var errs []error
		for _, a := range list {
			u, err := a.Authenticate(r)
			if u != nil && err == nil {
				return authenticated(u), nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	})
}

// authenticated returns the user with the group of all authenticated users added.
func authenticated(u *User) *User {
	if slices.Contains(u.Groups, authenticatedGroup) || slices.Contains(u.Groups, unauthenticatedGroup) {
		return u
	}
	known := *u
	known.Groups = append(slices.Clone(u.Groups), authenticatedGroup)
	return &known
}

// Anonymous returns an Authenticator that calls a, and returns the anonymous user for requests
// without credentials. The Authorizer then decides about anonymous requests too. If a returns an
// error, Anonymous returns it as well: a request with an invalid token is not anonymous.
func Anonymous(a Authenticator) Authenticator {
	return AuthenticatorFunc(func(r *http.Request) (*User, error) {
		u, err := a.Authenticate(r)
		if u != nil || err != nil {
			return u, err
		}
		return &User{Name: AnonymousUser, Groups: []string{unauthenticatedGroup}}, nil
	})
}

// Attributes are the action to authorize: always on one subresource of the
// cluster-scoped resource "nodes", API version v1.
type Attributes struct {
	User        *User
	Verb        string // verb of the API: get, create, update, patch, delete or ""
	Node        string
	Subresource string
	Path        string // path of the request
}

// Authorizer decides whether a request is allowed. If the request is denied, reason may say why.
// An error means that no decision was possible. It may be called concurrently.
type Authorizer interface {
	Authorize(ctx context.Context, a Attributes) (allowed bool, reason string, err error)
}

// AuthorizerFunc is a function that implements Authorizer.
type AuthorizerFunc func(ctx context.Context, a Attributes) (bool, string, error)

// Authorize calls f.
func (f AuthorizerFunc) Authorize(ctx context.Context, a Attributes) (bool, string, error) {
	return f(ctx, a)
}

// AlwaysAllow allows every authenticated user.
func AlwaysAllow() Authorizer {
	return AuthorizerFunc(func(context.Context, Attributes) (bool, string, error) { return true, "", nil })
}
