package localapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// stream forwards a request to the node's own API, with that API's paths and parameters.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, k *kind, q *query) error {
	if s.cfg.Kubelet == nil {
		return notAllowed(q.verb, "this server has no access to containers")
	}
	name := q.name
	if k == s.nodes {
		var err error
		if name, err = s.proxied(r.Context(), name); err != nil {
			return err
		}
	}
	it, ok := s.item(k, key{Namespace: q.objectNamespace(k), Name: name})
	if !ok {
		return notFound(k, q.name)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		return notAllowed(q.verb, "a stream is opened by GET or POST")
	}
	if p, ok := it.Object.(*v1.Pod); ok && p.Spec.NodeName == "" { // the node does not know the pod
		if q.subresource == "log" {
			w.Header().Set("Content-Type", "text/plain")
			return nil
		}
		return apierrors.NewBadRequest("pod " + p.Name + " does not have a host assigned")
	}
	if !s.pools.streams.Take(q.client, 1) {
		return tooMany("there are too many streams")
	}
	defer s.pools.streams.Give(q.client, 1)
	q.entered.leave()
	rc := http.NewResponseController(w)
	_, _ = rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(time.Time{}) // the node's own API sets the deadlines of streams
	var path string
	var values url.Values
	var err error
	if k == s.nodes {
		path, values = "/"+q.rest, q.values
	} else if path, values, err = podPath(it.Object.(*v1.Pod), q); err != nil {
		return err
	}
	to := r.Clone(r.Context())
	to.URL.Path, to.URL.RawPath, to.URL.RawQuery = path, "", values.Encode()
	to.RequestURI = to.URL.RequestURI()
	plain := &errorWriter{ResponseWriter: w, s: s, accept: q.accept}
	if q.subresource == "log" && wsstream.IsWebSocketRequest(r) {
		s.serveMessages(plain, r, to)
	} else {
		s.cfg.Kubelet.ServeHTTP(plain, to)
	}
	plain.finish()
	return nil
}

// kubeletPort is the default port of a node's own API in Kubernetes.
const kubeletPort = 10250

// proxied returns the node for a proxy request; id is NAME, NAME:PORT or SCHEME:NAME:PORT. The
// only supported port is the port of the node's own API.
func (s *Server) proxied(ctx context.Context, id string) (string, error) {
	_, name, port, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return "", apierrors.NewBadRequest(fmt.Sprintf("invalid node request %.100q; want NAME, NAME:PORT or https:NAME:PORT", id))
	}
	if err := s.fresh(ctx, s.nodes); err != nil {
		return "", err
	}
	own := strconv.Itoa(kubeletPort)
	if it, ok := s.item(s.nodes, key{Name: name}); ok {
		if n := it.Object.(*v1.Node).Status.DaemonEndpoints.KubeletEndpoint.Port; n > 0 {
			own = strconv.Itoa(int(n))
		}
	}
	if port != "" && port != own {
		return "", apierrors.NewBadRequest(fmt.Sprintf("the proxy target is %.100q; want the node's own API, https:%s:%s", id, name, own))
	}
	return name, nil
}

// podPath returns the path and the parameters of a pod's stream in the node's own API.
func podPath(p *v1.Pod, q *query) (string, url.Values, error) {
	out := url.Values{}
	if q.subresource == "portforward" {
		for _, port := range q.values["ports"] {
			out.Add("port", port)
		}
		return "/portForward/" + p.Namespace + "/" + p.Name, out, nil
	}
	container, err := containerOf(p, q.values.Get("container"))
	if err != nil {
		return "", nil, err
	}
	where := "/" + p.Namespace + "/" + p.Name + "/" + container
	if q.subresource == "log" {
		for name, v := range q.values {
			if name != "container" {
				out[name] = v
			}
		}
		return "/containerLogs" + where, out, nil
	}
	for name, to := range map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"} {
		if flag(q.values, name) {
			out.Set(to, "1")
		}
	}
	out["command"] = q.values["command"]
	return "/" + q.subresource + where, out, nil
}

// containerOf returns the container of a request: the one that it names, or the only one, or the
// pod's default container (an annotation).
func containerOf(p *v1.Pod, name string) (string, error) {
	if name == "" {
		name = p.Annotations["kubectl.kubernetes.io/default-container"]
	}
	if name == "" && len(p.Spec.Containers) == 1 {
		name = p.Spec.Containers[0].Name
	}
	var names []string
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			names = append(names, list[i].Name)
		}
	}
	for i := range p.Spec.EphemeralContainers {
		names = append(names, p.Spec.EphemeralContainers[i].Name)
	}
	if name == "" {
		return "", apierrors.NewBadRequest("a container name must be specified for pod " + p.Name + ", choose one of: " + quoted(names))
	}
	if !contains(names, name) {
		return "", apierrors.NewBadRequest("container " + name + " is not valid for pod " + p.Name + "; it has " + quoted(names))
	}
	return name, nil
}

func quoted(names []string) string {
	out := "["
	for i, n := range names {
		if i > 0 {
			out += " "
		}
		out += n
	}
	return out + "]"
}

// errorWriter converts an error that the node's own API writes as plain text to a Status.
type errorWriter struct {
	http.ResponseWriter

	s      *Server
	accept accepted
	code   int
	text   []byte
}

// maxText limits the bytes of an error's text that are passed on.
const maxText = 4 << 10

// Unwrap is for http.ResponseController, since streams hijack the connection.
func (e *errorWriter) Unwrap() http.ResponseWriter { return e.ResponseWriter }

func (e *errorWriter) Flush() { _ = http.NewResponseController(e.ResponseWriter).Flush() }

func (e *errorWriter) WriteHeader(code int) {
	if code >= http.StatusBadRequest {
		e.code = code
		return
	}
	e.ResponseWriter.WriteHeader(code)
}

func (e *errorWriter) Write(b []byte) (int, error) {
	if e.code == 0 {
		return e.ResponseWriter.Write(b)
	}
	e.text = append(e.text, b[:min(len(b), maxText-len(e.text))]...)
	return len(b), nil
}

func (e *errorWriter) finish() {
	if e.code == 0 {
		return
	}
	text := string(e.text)
	reason := statusReason(e.code)
	e.Header().Del("Content-Length")
	e.Header().Del("X-Content-Type-Options")
	if e.accept.info.Serializer == nil || e.accept.as != "" {
		e.accept = accepted{info: e.s.codecs.infos[typeJSON]}
	}
	e.s.codecs.fail(e.ResponseWriter, e.accept, generic(int32(e.code), reason, trimNewline(text))) //nolint:gosec // it has three digits
}

func trimNewline(s string) string {
	for len(s) > 0 && (s[len(s)-1] == '\n' || s[len(s)-1] == '\r') {
		s = s[:len(s)-1]
	}
	if s == "" {
		return "the node gives no reason"
	}
	return s
}
