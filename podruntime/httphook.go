package podruntime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Limits of HTTP hooks, with the values of the kubelet.
const (
	hookBody      = 10 << 10 // bytes of an answer that are read
	hookRedirects = 10       // redirects of one request that are followed
)

// httpHook makes a GET request. As in the kubelet, any answer is a success. If a server answers an
// HTTPS request in plain HTTP, the request is repeated over HTTP without the Authorization header,
// since the header would be sent unencrypted.
func (m *Manager) httpHook(ctx context.Context, pod *v1.Pod, ips []string, c *v1.Container, g *v1.HTTPGetAction) error {
	req, err := hookRequest(ctx, pod, ips, c, g)
	if err != nil {
		return fmt.Errorf("http hook: %w", err)
	}
	err = m.ask(req)
	// The error is that of net/http for a plain answer to a TLS handshake.
	if err != nil && req.URL.Scheme == "https" && errors.Is(err, http.ErrSchemeMismatch) {
		plain := req.Clone(ctx)
		plain.URL.Scheme = "http"
		plain.Header.Del("Authorization")
		// Only a fallback that worked is reported: otherwise the hook fails, which
		// has its own event.
		if err = m.ask(plain); err == nil {
			m.met.hookFallbacks.Inc()
			m.event(pod, v1.EventTypeWarning, "LifecycleHTTPFallback",
				"HTTPS lifecycle hook %s answered in plain HTTP; it was asked again over HTTP", req.URL.Host)
		}
	}
	if err != nil {
		return fmt.Errorf("http hook: %w", err)
	}
	return nil
}

// ask makes a request and drops the answer. As for probes, redirects are followed on the same host
// only. A redirect to another host counts as the answer.
func (m *Manager) ask(req *http.Request) error {
	client := http.Client{
		// An idle connection would outlive the container that it leads to.
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: insecureTLS(), DialContext: m.dial},
		// A hook is meant for the pod; a redirect must not lead the node's request
		// elsewhere.
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if next.URL.Hostname() != via[0].URL.Hostname() {
				return http.ErrUseLastResponse
			}
			if len(via) >= hookRedirects {
				return fmt.Errorf("more than %d redirects", hookRedirects)
			}
			// The header would travel in the open.
			if next.URL.Scheme != "https" && via[0].URL.Scheme == "https" {
				next.Header.Del("Authorization")
			}
			return nil
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, hookBody) // the answer has come
	return nil
}

// hookRequest builds the request of a hook.
func hookRequest(ctx context.Context, pod *v1.Pod, ips []string, c *v1.Container, g *v1.HTTPGetAction) (*http.Request, error) {
	host, err := hookHost(pod, ips, g)
	if err != nil {
		return nil, err
	}
	port, err := resolvePort(g.Port, c)
	if err != nil {
		return nil, err
	}
	// The API has it in upper case and fills in HTTP; a pod that nobody defaulted
	// lacks it.
	scheme := strings.ToLower(string(g.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	base := url.URL{Scheme: scheme, Host: net.JoinHostPort(host, strconv.Itoa(port))}
	path := "/" + strings.TrimPrefix(g.Path, "/")
	u, err := url.Parse(base.String() + path)
	if err != nil { // a path that is no part of a URL is taken literally
		base.Path = path
		u = &base
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	// Add, not set: the API allows several headers of one name.
	for _, h := range g.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	// net/http takes the host from the request alone, and ignores the header.
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	// The kubelet's form: kube-lifecycle/<major>.<minor> of the Kubernetes
	// version.
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", "kube-lifecycle/1.37")
	}
	if accept, ok := req.Header["Accept"]; !ok {
		req.Header.Set("Accept", "*/*")
	} else if accept[0] == "" {
		req.Header.Del("Accept") // as one asks a probe to send none
	}
	return req, nil
}

// hookHost returns the host that g names, or the pod's first address if g names none.
func hookHost(pod *v1.Pod, ips []string, g *v1.HTTPGetAction) (string, error) {
	switch {
	case g.Host != "":
		return g.Host, nil
	// The runtime's addresses are newer than the addresses in the status.
	case len(ips) > 0:
		return ips[0], nil
	case pod != nil && len(pod.Status.PodIPs) > 0:
		return pod.Status.PodIPs[0].IP, nil
	default:
		return "", errors.New("the pod has no address")
	}
}

// resolvePort finds a port by number or by its name in the container.
func resolvePort(p intstr.IntOrString, c *v1.Container) (int, error) {
	// A port by name may also be a number in quotes. Names come first.
	n := p.IntValue()
	if p.Type == intstr.String {
		for _, cp := range c.Ports {
			if cp.Name == p.StrVal {
				return int(cp.ContainerPort), nil
			}
		}
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("port %q: want a number from 1 to 65535 or the name of a port of container %q", p.String(), c.Name)
	}
	return n, nil
}
