package localapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/httpbound"
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

// User is who sends a request. Name and Groups decide; UID and Extra are what somebody who
// impersonates a user says of that one, and are only shown.
type User struct {
	Name   string
	Groups []string
	UID    string
	Extra  map[string][]string

	machine bool // see Root
}

// Authenticate returns the sender of a request; an error, or nil, is nobody, and answered with
// 401. It must not block.
type Authenticate func(r *http.Request) (*User, error)

// Root takes everybody for root: for a socket that only root can open. Of places and bytes
// (see Config) some are left for it alone.
func Root(*http.Request) (*User, error) {
	return &User{Name: "root", Groups: []string{GroupAdmin}, machine: true}, nil
}

// client is who places and bytes are taken for.
func (u *User) client() httpbound.Client {
	switch {
	case u.machine:
		return httpbound.Client{Rank: httpbound.Machine}
	case u.level() == admin:
		return httpbound.Client{Rank: httpbound.Admin, Name: u.Name}
	default:
		return httpbound.Client{Rank: httpbound.User, Name: u.Name}
	}
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
		user, _, err := identify(r, who)
		switch {
		case err != nil:
			s.refuse(w, r, err)
		case user.level() < least:
			s.refuse(w, r, generic(http.StatusForbidden, metav1.StatusReasonForbidden,
				fmt.Sprintf("User %q cannot get path %q: want a certificate of the group %s", user.Name, r.URL.Path, group)))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// extraHeader is how a header begins that has one value of an extra of who is impersonated.
const extraHeader = "Impersonate-Extra-"

// identify returns who sends a request: whom who knows, or whom that one impersonates; and
// who takes places for it, which is always the one whom who knows. Only an admin may
// impersonate: others get 403, as their request would otherwise be answered with rights
// that they did not ask for. The headers are taken out of the request.
func identify(r *http.Request, who Authenticate) (*User, httpbound.Client, error) {
	user, err := who(r)
	if err != nil || user == nil {
		return nil, httpbound.Client{}, errUnknown()
	}
	client := user.client()
	as, what, err := impersonated(r.Header)
	switch {
	case err != nil || as == nil:
		return user, client, err
	case user.level() < admin:
		return nil, client, generic(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf(
			"%s is forbidden: User %q cannot impersonate resource %q in API group \"\" at the cluster scope: want a certificate of the group %s", what, user.Name, what, GroupAdmin))
	}
	return as, client, nil
}

// impersonated reads the headers of impersonation; nil if there are none. what is the resource
// that rights are asked for.
func impersonated(h http.Header) (as *User, what string, err error) {
	as = &User{Name: h.Get("Impersonate-User"), Groups: h.Values("Impersonate-Group"), UID: h.Get("Impersonate-Uid")}
	some := as.Name != "" || len(as.Groups) > 0 || as.UID != ""
	for name, values := range h {
		if !strings.HasPrefix(name, extraHeader) {
			continue
		}
		some = true
		key, err := url.PathUnescape(strings.ToLower(strings.TrimPrefix(name, extraHeader)))
		if err != nil || key == "" {
			return nil, "", apierrors.NewBadRequest(fmt.Sprintf("the header %.100q names no extra", name))
		}
		if as.Extra == nil {
			as.Extra = map[string][]string{}
		}
		as.Extra[key] = append(as.Extra[key], values...)
	}
	switch {
	case !some:
		return nil, "", nil
	case as.Name == "":
		return nil, "", apierrors.NewBadRequest("groups, a UID or extras are impersonated without a user: want the header Impersonate-User")
	}
	what = "users"
	if rest, ok := strings.CutPrefix(as.Name, "system:serviceaccount:"); ok {
		what = "serviceaccounts"
		if namespace, _, ok := strings.Cut(rest, ":"); ok && len(as.Groups) == 0 {
			as.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
		}
	}
	if as.Name != "system:anonymous" && !slices.Contains(as.Groups, authenticated) {
		as.Groups = append(slices.Clone(as.Groups), authenticated)
	}
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			h.Del(name)
		}
	}
	return as, what, nil
}

// authenticated is the group of all who were identified, in Kubernetes.
const authenticated = "system:authenticated"

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
	if q.resource == "*" { // among which are Secrets, and ways into containers and the node
		read = false
	}
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
