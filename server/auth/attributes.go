package auth

import (
	"net/http"
	"strings"
)

// subresourceProxy is the subresource of the paths that are not in table. It is also enough for the
// paths to which KEP-2862 gave a subresource of their own, such as /pods.
const subresourceProxy = "proxy"

// table has the subresources that allow a path and all paths below it. One of them is enough
// (KEP-2862, fine-grained kubelet authorization).
var table = []struct {
	path         string
	subresources []string
}{
	{"/stats", []string{"stats"}},
	{"/metrics", []string{"metrics"}},
	{"/logs", []string{"log"}},
	{"/checkpoint", []string{"checkpoint"}},
	{"/statusz", []string{"statusz"}},
	{"/flagz", []string{"configz"}},
	{"/pods", []string{"pods", subresourceProxy}},
	{"/runningpods", []string{"pods", subresourceProxy}},
	{"/healthz", []string{"healthz", subresourceProxy}},
	{"/configz", []string{"configz", subresourceProxy}},
}

// Subresources returns the subresources of "nodes" that allow a path, in the order in which they
// are tried. One of them is enough.
func Subresources(path string) []string {
	for _, row := range table {
		if below(path, row.path) {
			return row.subresources
		}
	}
	return []string{subresourceProxy}
}

// below reports whether path is base or below it: "/foobar" is not below "/foo".
func below(path, base string) bool {
	base = strings.TrimSuffix(base, "/")
	rest, ok := strings.CutPrefix(path, base)
	return ok && (rest == "" || rest[0] == '/')
}

// Verb returns the Kubernetes API's verb for an HTTP method. It returns "" if the method has no
// such verb.
func Verb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet, http.MethodHead: // HEAD requires the permission for GET
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	default:
		return ""
	}
}

// Of returns the attributes of a request, in the order in which they are tried.
func Of(u *User, r *http.Request, node string) []Attributes {
	var out []Attributes
	for _, s := range Subresources(r.URL.Path) {
		out = append(out, Attributes{User: u, Verb: Verb(r.Method), Node: node, Subresource: s, Path: r.URL.Path})
	}
	return out
}
