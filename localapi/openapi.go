package localapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodewright/nodewright/internal/schema"
)

// openapi has the documents of OpenAPI v3, by paths such as apis/apps/v1. They are created at the
// first request, since most agents get none.
type openapi struct {
	mu   sync.Mutex
	docs map[string][]byte
}

// openapiOf returns the document for a path; nil if there is none.
func (s *Server) openapiOf(path string) []byte {
	s.openapi.mu.Lock()
	defer s.openapi.mu.Unlock()
	if doc, ok := s.openapi.docs[path]; ok {
		return doc
	}
	for _, gv := range s.versions() {
		if pathOf(gv) != path {
			continue
		}
		doc, err := json.Marshal(s.describeVersion(gv))
		if err != nil { // maps and strings can always be encoded
			return nil
		}
		if s.openapi.docs == nil {
			s.openapi.docs = map[string][]byte{}
		}
		s.openapi.docs[path] = doc
		return doc
	}
	return nil
}

func pathOf(gv apischema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// serveOpenAPI answers requests below /openapi/v3.
func (s *Server) serveOpenAPI(w http.ResponseWriter, path string) error {
	if path = strings.TrimPrefix(path, "/"); path != "" {
		doc := s.openapiOf(path)
		if doc == nil {
			return generic(http.StatusNotFound, metav1.StatusReasonNotFound, "there is no OpenAPI document of "+path)
		}
		w.Header().Set("Content-Type", typeJSON)
		w.Header().Set("ETag", `"`+hashOf(doc)+`"`)
		_, _ = w.Write(doc) // fails only if the client has disconnected
		return nil
	}
	paths := map[string]any{}
	for _, gv := range s.versions() {
		p := pathOf(gv)
		paths[p] = map[string]any{"serverRelativeURL": "/openapi/v3/" + p + "?hash=" + hashOf(s.openapiOf(p))}
	}
	respondJSON(w, map[string]any{"paths": paths})
	return nil
}

// serveOldOpenAPI answers with an empty document of OpenAPI v2. kubectl requests it for kinds
// that v3 does not have, and then reports that there is no such kind.
func (s *Server) serveOldOpenAPI(w http.ResponseWriter, r *http.Request) {
	const version = "2.0"
	if strings.Contains(r.Header.Get("Accept"), "proto-openapi") {
		w.Header().Set("Content-Type", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
		_, _ = w.Write(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), version)) // the field Document.swagger
		return
	}
	respondJSON(w, dict{
		"swagger": version, "info": dict{"title": "Kubernetes API of one node: OpenAPI v3 describes it", "version": s.cfg.Version.GitVersion},
		"paths": dict{}, "definitions": dict{},
	})
}

func hashOf(doc []byte) string {
	sum := sha256.Sum256(doc)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

type dict = map[string]any

// describeVersion returns the document for a version of a group.
func (s *Server) describeVersion(gv apischema.GroupVersion) dict {
	paths, kinds := dict{}, []schema.Kind{}
	for _, k := range s.kinds {
		if k.GroupVersion() != gv {
			continue
		}
		kinds = append(kinds, schema.Kind{GroupVersionKind: k.GroupVersionKind, Type: reflect.TypeOf(k.empty)},
			schema.Kind{GroupVersionKind: gv.WithKind(k.Kind + "List"), Type: reflect.TypeOf(k.list)})
		describePaths(paths, k.GroupVersionKind, k.resource, k.namespaced, schema.Of(k.goType()).Name)
		for _, sub := range k.subresources {
			describePath(paths, k.GroupVersionKind, k.resource+"/{name}/"+sub, k.namespaced, schema.Of(k.goType()).Name, "get", "put", "patch")
		}
	}
	components := schema.Components(kinds...)
	for _, e := range s.computed {
		if e.GroupVersion() == gv && e.instead != "" {
			name := "com.github.nodewright.elsewhere." + e.Kind
			components[name] = dict{
				"type": "object", "description": e.instead, "x-kubernetes-preserve-unknown-fields": true,
				"x-kubernetes-group-version-kind": []any{gvkOf(e.GroupVersionKind)},
			}
			describePaths(paths, e.GroupVersionKind, e.resource, true, name)
		}
	}
	return dict{
		"openapi": "3.0.0", "info": dict{"title": "Kubernetes API of one node", "version": s.cfg.Version.GitVersion},
		"paths": paths, "components": dict{"schemas": components},
	}
}

func gvkOf(k apischema.GroupVersionKind) dict {
	return dict{"group": k.Group, "version": k.Version, "kind": k.Kind}
}

func describePaths(paths dict, gvk apischema.GroupVersionKind, resource string, namespaced bool, model string) {
	describePath(paths, gvk, resource, namespaced, model, "get", "post", "delete")
	describePath(paths, gvk, resource+"/{name}", namespaced, model, "get", "put", "patch", "delete")
}

// describePath describes the operations of a path. Clients read their parameters.
func describePath(paths dict, gvk apischema.GroupVersionKind, rest string, namespaced bool, model string, methods ...string) {
	path := "/" + pathOf(gvk.GroupVersion()) + "/"
	parameters := []any{}
	add := func(in, name string, required bool) dict {
		p := dict{"in": in, "name": name, "schema": dict{"type": "string"}}
		if required {
			p["required"] = true
		}
		return p
	}
	if namespaced {
		path += "namespaces/{namespace}/"
		parameters = append(parameters, add("path", "namespace", true))
	}
	if strings.Contains(rest, "{name}") {
		parameters = append(parameters, add("path", "name", true))
	}
	content := dict{"schema": dict{"$ref": schema.Ref(model)}}
	item := dict{"parameters": parameters}
	for _, m := range methods {
		op := dict{
			"x-kubernetes-action": m, "x-kubernetes-group-version-kind": gvkOf(gvk),
			"responses": dict{"200": dict{"description": "OK", "content": dict{typeJSON: content}}},
		}
		if m != "get" {
			query := []any{add("query", "dryRun", false)}
			if m != "delete" {
				query = append(query, add("query", "fieldManager", false), add("query", "fieldValidation", false))
				op["requestBody"] = dict{"content": dict{typeJSON: content}}
			}
			op["parameters"] = query
		}
		item[m] = op
	}
	paths[path+rest] = item
}
