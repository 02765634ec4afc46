package podruntime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Limits of hooks. The kubelet has none for commands, and so leaks those that
// hang.
const (
	postStartLimit = 10 * time.Minute
	hookBody       = 10 << 10 // bytes of an answer that are read
)

// runHook runs a lifecycle handler: a command, a request, or a sleep. ips are
// the pod's addresses.
func (m *Manager) runHook(ctx context.Context, pod *v1.Pod, ips []string, c *v1.Container, id string, h *v1.LifecycleHandler) error {
	ctx, cancel := context.WithTimeout(ctx, postStartLimit)
	defer cancel()
	switch {
	case h.Exec != nil:
		var timeout time.Duration
		if d, ok := ctx.Deadline(); ok {
			timeout = time.Until(d)
		}
		out, errOut, err := m.rt.ExecSync(ctx, id, h.Exec.Command, timeout)
		if err != nil {
			m.cfg.Log.Info("hook command failed", zap.String("container", c.Name),
				zap.Strings("command", h.Exec.Command), zap.ByteString("stdout", cut(out)), zap.ByteString("stderr", cut(errOut)), zap.Error(err))
			return fmt.Errorf("hook command: %w", err)
		}
		return nil
	case h.HTTPGet != nil:
		return m.httpHook(ctx, pod, ips, c, h.HTTPGet)
	case h.Sleep != nil:
		t := time.NewTimer(time.Duration(h.Sleep.Seconds) * time.Second)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("sleep hook: %w", ctx.Err())
		}
	default:
		return errors.New("hook has neither exec, httpGet nor sleep")
	}
}

// cut keeps the log readable.
func cut(b []byte) []byte { return b[:min(len(b), 1<<10)] }

// httpHook makes a GET request. Any answer is a success, as the kubelet has
// it.
func (m *Manager) httpHook(ctx context.Context, pod *v1.Pod, ips []string, c *v1.Container, g *v1.HTTPGetAction) error {
	host := g.Host
	if host == "" {
		if len(ips) == 0 && pod != nil {
			for _, ip := range pod.Status.PodIPs {
				ips = append(ips, ip.IP)
			}
		}
		if len(ips) == 0 {
			return errors.New("http hook: the pod has no address")
		}
		host = ips[0]
	}
	port, err := resolvePort(g.Port, c)
	if err != nil {
		return fmt.Errorf("http hook: %w", err)
	}
	scheme := strings.ToLower(string(g.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	url := scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port)) + "/" + strings.TrimPrefix(g.Path, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("http hook: %w", err)
	}
	req.Header.Set("User-Agent", "kube-lifecycle/1.36")
	for _, h := range g.HTTPHeaders {
		if strings.EqualFold(h.Name, "Host") {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: insecureTLS()}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("http hook: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, hookBody)
	return nil
}

// resolvePort finds a port by number or by its name in the container.
func resolvePort(p intstr.IntOrString, c *v1.Container) (int, error) {
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
