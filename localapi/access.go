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

// Groups for client certificates, in the organization field. Each group includes the rights of the
// groups before it.
const (
	// GroupView may read everything except Secrets.
	GroupView = "nodewright:view"
	// GroupEdit may change objects in namespaces, read Secrets, and use exec, attach and
	// port-forward. A user who may create pods can do anything on the machine.
	GroupEdit = "nodewright:edit"
	// GroupAdmin may do everything.
	GroupAdmin = "nodewright:admin"
)

// User is the sender of a request. Name and Groups determine the user's rights. UID and Extra come
// from impersonation headers and are only shown.
type User struct {
	Name   string
	Groups []string
	UID    string
	Extra  map[string][]string

	machine bool // see Root
}

// Authenticate returns the sender of a request. An error or nil is answered with 401. It must not
// block.
type Authenticate func(r *http.Request) (*User, error)

// Root treats every sender as root. Use Root for a socket that only root can open. Some
// request slots and bytes (see Config) are reserved for root.
func Root(*http.Request) (*User, error) {
	return &User{Name: "root", Groups: []string{GroupAdmin}, machine: true}, nil
}

// client returns the client to which slots and bytes are charged.
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

// Certificates identifies a request's sender by its client certificate, which the listener has
// verified (tls.RequireAndVerifyClientCert). The common name is the user, and the organizations
// are the groups.
func Certificates(r *http.Request) (*User, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil //nolint:nilnil // no sender
	}
	subject := r.TLS.PeerCertificates[0].Subject
	return &User{Name: subject.CommonName, Groups: subject.Organization}, nil
}

// extraHeader is the prefix of the headers that set extra fields of the impersonated user.
const extraHeader = "Impersonate-Extra-"

// identify returns the user of a request and the client to which slots are charged. The user may
// be impersonated; the client is always the real sender. Only an admin may impersonate; others get
// 403. Ignoring the headers instead would answer the request with the sender's own rights.
// identify removes the impersonation headers from the request.
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

// impersonated parses the impersonation headers. It returns nil if there are none. The result what
// is the resource that the sender needs the right to impersonate.
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
			return nil, "", apierrors.NewBadRequest(fmt.Sprintf("the header %.100q names no extra field", name))
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
		return nil, "", apierrors.NewBadRequest("groups, a UID or extra fields are impersonated without a user: want the header Impersonate-User")
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

// authenticated is Kubernetes' group of all identified users.
const authenticated = "system:authenticated"

// level is a set of rights; a higher level includes the lower ones.
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

// needs returns the level that a request requires.
func (q *query) needs() level {
	read := q.verb == "get" || q.verb == "list" || q.verb == "watch"
	if q.resource == "*" { // includes Secrets, and access to containers and the node
		read = false
	}
	switch {
	case q.resource == "" && read: // discovery
		return viewer
	case q.verb == "create" && (q.group == authenticationV1.Group || q.group == authorizationV1.Group): // about the user itself
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
