package localapi

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// discover answers requests about the API itself, and 404 for unknown paths.
func (s *Server) discover(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return notAllowed(r.Method, "discovery can only be read")
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch path {
	case "":
		respondJSON(w, metav1.RootPaths{Paths: []string{"/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"}})
	case "/version":
		respondJSON(w, s.cfg.Version)
	case "/api":
		if wantsAggregated(r) {
			s.aggregated(w, func(gv schema.GroupVersion) bool { return gv.Group == "" })
			return nil
		}
		respondJSON(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}, ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{}})
	case "/apis":
		if wantsAggregated(r) {
			s.aggregated(w, func(gv schema.GroupVersion) bool { return gv.Group != "" })
			return nil
		}
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
		for _, gv := range s.versions() {
			if gv.Group != "" {
				list.Groups = append(list.Groups, groupOf(gv))
			}
		}
		respondJSON(w, list)
	case "/openapi/v2":
		s.serveOldOpenAPI(w, r)
	default:
		if strings.HasPrefix(path, "/openapi/v3") {
			return s.serveOpenAPI(w, strings.TrimPrefix(path, "/openapi/v3"))
		}
		return s.discoverGroup(w, path)
	}
	return nil
}

func (s *Server) discoverGroup(w http.ResponseWriter, path string) error {
	for _, gv := range s.versions() {
		switch {
		case path == "/api/"+gv.Version && gv.Group == "", path == "/apis/"+gv.String() && gv.Group != "":
			list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(), APIResources: s.resources(gv)}
			respondJSON(w, list)
			return nil
		case path == "/apis/"+gv.Group && gv.Group != "":
			g := groupOf(gv)
			g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			respondJSON(w, g)
			return nil
		}
	}
	return generic(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

func groupOf(gv schema.GroupVersion) metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	return metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
}

// versions returns the versions of all groups, v1 first.
func (s *Server) versions() (out []schema.GroupVersion) {
	add := func(gv schema.GroupVersion) {
		if !slices.Contains(out, gv) {
			out = append(out, gv)
		}
	}
	for _, k := range s.kinds {
		add(k.GroupVersion())
	}
	for _, c := range s.computed {
		add(c.GroupVersion())
	}
	return out
}

// resources returns the resources of a version of a group.
func (s *Server) resources(gv schema.GroupVersion) (out []metav1.APIResource) {
	for _, k := range s.kinds {
		if k.GroupVersion() != gv {
			continue
		}
		out = append(out, metav1.APIResource{
			Name: k.resource, SingularName: k.singular, Namespaced: k.namespaced, Kind: k.Kind, Verbs: k.verbs(), ShortNames: k.short, Categories: k.categories,
			StorageVersionHash: storageHash(k.kept().GroupVersionKind),
		})
		for _, sub := range k.subresources {
			verbs := metav1.Verbs{"get", "patch", "update"}
			if sub == "finalize" {
				verbs = metav1.Verbs{"update"}
			}
			out = append(out, metav1.APIResource{Name: k.resource + "/" + sub, Namespaced: k.namespaced, Kind: k.Kind, Verbs: verbs})
		}
		for _, sub := range k.streams {
			r := metav1.APIResource{Name: k.resource + "/" + sub, Namespaced: k.namespaced, Kind: k.Kind, Verbs: metav1.Verbs{"create", "get"}}
			switch sub {
			case "log":
				r.Verbs = metav1.Verbs{"get"}
			case "proxy":
				r.Kind = "NodeProxyOptions"
			default:
				r.Kind = map[string]string{"exec": "PodExecOptions", "attach": "PodAttachOptions", "portforward": "PodPortForwardOptions"}[sub]
			}
			out = append(out, r)
		}
		if k == s.pods {
			out = append(out, metav1.APIResource{Name: "pods/eviction", Namespaced: true, Kind: "Eviction", Group: "policy", Version: "v1", Verbs: metav1.Verbs{"create"}})
		}
	}
	for _, c := range s.computed {
		if c.GroupVersion() == gv {
			out = append(out, metav1.APIResource{Name: c.resource, SingularName: c.singular, Namespaced: c.namespaced, Kind: c.Kind, Verbs: c.verbs, ShortNames: c.short})
		}
	}
	return out
}

// storageHash returns a hash of the version in which objects are stored. Clients compare it to
// notice a change of the version.
func storageHash(k schema.GroupVersionKind) string {
	sum := sha256.Sum256([]byte(k.Group + "/" + k.Version + "/" + k.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// wantsAggregated reports whether a client requests aggregated discovery.
func wantsAggregated(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		media, p, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err == nil && media == typeJSON && p["g"] == apidiscovery.GroupName && p["v"] == "v2" && p["as"] == "APIGroupDiscoveryList" {
			return true
		}
	}
	return false
}

// aggregated answers with all resources of the wanted groups.
func (s *Server) aggregated(w http.ResponseWriter, want func(schema.GroupVersion) bool) {
	list := apidiscovery.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}, Items: []apidiscovery.APIGroupDiscovery{}}
	for _, gv := range s.versions() {
		if !want(gv) {
			continue
		}
		v := apidiscovery.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
		for _, r := range s.resources(gv) {
			name, sub, isSub := strings.Cut(r.Name, "/")
			kind := &metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: r.Kind}
			if r.Version != "" {
				kind.Group, kind.Version = r.Group, r.Version
			}
			if isSub {
				of := &v.Resources[len(v.Resources)-1]
				of.Subresources = append(of.Subresources, apidiscovery.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind, Verbs: r.Verbs})
				continue
			}
			d := apidiscovery.APIResourceDiscovery{
				Resource: name, ResponseKind: kind, Scope: apidiscovery.ScopeCluster, SingularResource: r.SingularName,
				Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
			}
			if r.Namespaced {
				d.Scope = apidiscovery.ScopeNamespace
			}
			v.Resources = append(v.Resources, d)
		}
		list.Items = append(list.Items, apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []apidiscovery.APIVersionDiscovery{v}})
	}
	w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	_ = json.NewEncoder(w).Encode(list) // fails only if the client has disconnected
}
