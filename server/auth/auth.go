package auth

import (
	"context"
	"errors"
	"net/http"
	"slices"
)

// User is who sent a request.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// The names that Kubernetes gives to those who say nothing, and to all others
// (k8s.io/apiserver's user package).
const (
	AnonymousUser        = "system:anonymous"
	unauthenticatedGroup = "system:unauthenticated"
	authenticatedGroup   = "system:authenticated"
)

// Authenticator reports who sent a request. A nil User without an error means
// that it carries nothing that this Authenticator knows. An error means that
// what it carries is wrong, or could not be checked. It may be called from any
// goroutine.
type Authenticator interface {
	Authenticate(r *http.Request) (*User, error)
}

// AuthenticatorFunc is an Authenticator that is a function.
type AuthenticatorFunc func(r *http.Request) (*User, error)

// Authenticate calls f.
func (f AuthenticatorFunc) Authenticate(r *http.Request) (*User, error) { return f(r) }

// FirstOf asks each in turn until one knows the user. What was wrong is told
// only if none does.
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

// authenticated adds the group of all who are known.
func authenticated(u *User) *User {
	if slices.Contains(u.Groups, authenticatedGroup) || slices.Contains(u.Groups, unauthenticatedGroup) {
		return u
	}
	known := *u
	known.Groups = append(slices.Clone(u.Groups), authenticatedGroup)
	return &known
}

// Anonymous takes who is unknown for nobody, so that an Authorizer decides
// about them, too. It is asked after a, and never if a found something wrong:
// a bad token is not the same as none.
func Anonymous(a Authenticator) Authenticator {
	return AuthenticatorFunc(func(r *http.Request) (*User, error) {
		u, err := a.Authenticate(r)
		if u != nil || err != nil {
			return u, err
		}
		return &User{Name: AnonymousUser, Groups: []string{unauthenticatedGroup}}, nil
	})
}

// Attributes is what a user wants of a node: always of one subresource of the
// cluster-wide resource "nodes", API version v1.
type Attributes struct {
	User        *User
	Verb        string // of the API: get, create, update, patch, delete or ""
	Node        string
	Subresource string
	Path        string // of the request
}

// Authorizer decides. False means that nobody allowed it, and reason may say
// why. An error means that it could not be decided. It may be called from any
// goroutine.
type Authorizer interface {
	Authorize(ctx context.Context, a Attributes) (allowed bool, reason string, err error)
}

// AuthorizerFunc is an Authorizer that is a function.
type AuthorizerFunc func(ctx context.Context, a Attributes) (bool, string, error)

// Authorize calls f.
func (f AuthorizerFunc) Authorize(ctx context.Context, a Attributes) (bool, string, error) {
	return f(ctx, a)
}

// AlwaysAllow lets everyone in who is authenticated.
func AlwaysAllow() Authorizer {
	return AuthorizerFunc(func(context.Context, Attributes) (bool, string, error) { return true, "", nil })
}
