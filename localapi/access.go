package localapi

import (
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Groups that a certificate may have as organizations. Each may do what those before
// it may.
const (
	// GroupView may read all but Secrets.
	GroupView = "nodewright:view"
	// GroupEdit may change what is in namespaces, read Secrets, and reach into
	// containers. Who may make pods may do anything on the machine.
	GroupEdit = "nodewright:edit"
	// GroupAdmin may do everything.
	GroupAdmin = "nodewright:admin"
)

// User is who sends a request.
type User struct {
	Name   string
	Groups []string
}

// Authenticate returns the sender of a request; an error, or nil, is nobody, and answered with
// 401. It must not block.
type Authenticate func(r *http.Request) (*User, error)

// Root takes everybody for root: for a socket that only root can open.
func Root(*http.Request) (*User, error) {
	return &User{Name: "root", Groups: []string{GroupAdmin}}, nil
}

// Certificates identifies a request's client by its certificate, which the listener
// has verified (tls.RequireAndVerifyClientCert): its common name, and its
// organizations as groups.
func Certificates(r *http.Request) (*User, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil //nolint:nilnil // nobody
	}
	subject := r.TLS.PeerCertificates[0].Subject
	return &User{Name: subject.CommonName, Groups: subject.Organization}, nil
}

// Allow returns a handler that stands beside the API: members of a group, and of those
// that may do more, get to next, with the access that next gives everybody. Others are
// answered as by the API, with 401 or 403. An unknown group is taken for [GroupAdmin].
func (s *Server) Allow(who Authenticate, group string, next http.Handler) http.Handler {
	least := (&User{Groups: []string{group}}).level()
	if least == nobody {
		least = admin
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := who(r)
		switch {
		case err != nil || user == nil:
			s.refuse(w, r, errUnknown())
		case user.level() < least:
			s.refuse(w, r, generic(http.StatusForbidden, metav1.StatusReasonForbidden,
				fmt.Sprintf("User %q cannot get path %q: want a certificate of the group %s", user.Name, r.URL.Path, group)))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// level is how much a user may do.
type level int

const (
	nobody level = iota
	viewer
	editor
	admin
)

func (u *User) level() level {
	switch {
	case slices.Contains(u.Groups, GroupAdmin):
		return admin
	case slices.Contains(u.Groups, GroupEdit):
		return editor
	case slices.Contains(u.Groups, GroupView):
		return viewer
	default:
		return nobody
	}
}

// needs is the level that a request takes.
func (q *query) needs() level {
	read := q.verb == "get" || q.verb == "list" || q.verb == "watch"
	switch {
	case q.resource == "" && read: // discovery
		return viewer
	case q.verb == "create" && (q.group == authenticationV1.Group || q.group == authorizationV1.Group): // about themselves
		return viewer
	case q.resource == "nodes" && q.subresource == "proxy":
		return admin
	case q.resource == "secrets" && read:
		return editor
	case read && (q.subresource == "" || q.subresource == "log" || q.subresource == "status"):
		return viewer
	case q.namespace != "" && q.resource != "namespaces":
		return editor
	default:
		return admin
	}
}
