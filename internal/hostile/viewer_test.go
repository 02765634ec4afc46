//go:build !race

package hostile

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/localapi"
	nodelocalapi "github.com/nodewright/nodewright/nodeagent/localapi"
)

// withAPI has the agent serve its Kubernetes API at a port of its choice.
var withAPI = []string{"--local-api", "127.0.0.1:0"}

// client is somebody with a certificate of the local API.
type client struct {
	m    *machine
	host string // and port
	tls  *tls.Config
}

// client makes a certificate of a group: the position of whoever has a kubeconfig of it.
func (m *machine) client(name, group string) *client {
	m.t.Helper()
	var text []byte
	m.until("the API is served", func() (ok bool) {
		var err error
		text, err = nodelocalapi.Kubeconfig(m.path("root"), "", name, []string{group}, time.Hour)
		return err == nil
	})
	var k struct {
		Clusters []struct{ Cluster struct{ Server string } }
		Users    []struct {
			User struct {
				Cert []byte `json:"client-certificate-data"`
				Key  []byte `json:"client-key-data"`
			}
		}
	}
	m.must(yaml.Unmarshal(text, &k))
	cert, err := tls.X509KeyPair(k.Users[0].User.Cert, k.Users[0].User.Key)
	m.must(err)
	u, err := url.Parse(k.Clusters[0].Cluster.Server)
	m.must(err)
	return &client{m, u.Host, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}}} //nolint:gosec // of a test
}

// http is a client with a connection of its own, of HTTP/2 if it is asked for.
func (c *client) http(http2 bool) *http.Client {
	t := &http.Transport{TLSClientConfig: c.tls.Clone(), ForceAttemptHTTP2: http2}
	c.m.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// raw opens n connections, writes the same to each, and reads nothing. They are closed with the test.
func (c *client) raw(n int, secure bool, text string) {
	c.m.t.Helper()
	for range n {
		conn, err := net.Dial("tcp", c.host)
		c.m.must(err)
		c.m.t.Cleanup(func() { _ = conn.Close() })
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		if !secure {
			continue
		}
		over := tls.Client(conn, c.tls)
		go func() { // the agent may close it
			if over.Handshake() == nil {
				_, _ = io.WriteString(over, text)
			}
		}()
	}
}

// again is the pause between two bursts of a flood: the attacker runs in the test's process, on the same CPUs.
const again = 500 * time.Millisecond

// flood sends bursts of requests, each over one of some connections, to the end of the test.
func (c *client) flood(connections, each int, path string) {
	for range connections {
		h := c.http(true)
		for range each {
			go func() {
				for c.m.t.Context().Err() == nil {
					req, _ := http.NewRequestWithContext(c.m.t.Context(), http.MethodGet, "https://"+c.host+path, nil)
					if resp, err := h.Do(req); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
					time.Sleep(again)
				}
			}()
		}
	}
}

// other asks for a list again and again while an attack goes on, and says how often it was refused.
type other struct{ asked, refused atomic.Int64 }

func (m *machine) other(h *http.Client, base string) *other {
	o := &other{}
	go func() {
		for m.t.Context().Err() == nil {
			req, _ := http.NewRequestWithContext(m.t.Context(), http.MethodGet, base+"/api/v1/namespaces/default/pods?limit=1", nil)
			if resp, err := h.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				o.asked.Add(1)
				if resp.StatusCode != http.StatusOK {
					o.refused.Add(1)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return o
}

// root is a client of the socket that only root can open.
func (m *machine) root() *http.Client {
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", m.path("root", "agent.sock"))
	}}
	m.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// configMaps makes n ConfigMaps of so many bytes.
func (m *machine) configMaps(n, size int) {
	m.t.Helper()
	for i := range n {
		body, _ := json.Marshal(map[string]any{"metadata": map[string]string{"name": fmt.Sprint("big-", i)}, "data": map[string]string{"k": strings.Repeat("x", size)}})
		resp, err := m.root().Post("http://agent/api/v1/namespaces/default/configmaps", "application/json", strings.NewReader(string(body)))
		m.must(err)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			m.t.Fatal(resp.Status)
		}
	}
}

// viewers are the attacks of somebody who may only read. Meanwhile another viewer, an admin and root are served.
func viewers() (out []attack) {
	for _, a := range []struct {
		name string
		run  func(m *machine, c *client)
	}{
		{"viewer's selectors of 85,000 requirements", func(_ *machine, c *client) {
			q := "labelSelector=" + strings.TrimSuffix(strings.Repeat("!a,", 85_000), ",")
			c.flood(5, 8, "/api/v1/events?"+q)
			c.flood(5, 8, "/api/v1/events?watch=1&"+q)
		}},
		{"viewer's bodies that do not end", func(_ *machine, c *client) {
			c.raw(200, true, "POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{")
		}},
		{"viewer's answers that nobody reads", func(m *machine, c *client) {
			m.configMaps(60, 200<<10)
			c.raw(190, true, "GET /api/v1/configmaps HTTP/1.1\r\nHost: x\r\n\r\n")
		}},
		{"viewer's watches and lists", func(_ *machine, c *client) {
			c.flood(5, 80, "/api/v1/events?watch=1")
			c.flood(5, 20, "/api/v1/pods")
		}},
		{"silent connections to the API", func(_ *machine, c *client) { c.raw(2000, false, "") }},
	} {
		var others map[string]*other
		out = append(out, attack{name: a.name, args: withAPI, run: func(m *machine) {
			a.run(m, m.client("attacker", localapi.GroupView))
			others = map[string]*other{"root": m.other(m.root(), "http://agent")}
			for name, group := range map[string]string{"another viewer": localapi.GroupView, "admin": localapi.GroupAdmin} {
				c := m.client(name, group)
				others[name] = m.other(c.http(true), "https://"+c.host)
			}
		}, after: func(m *machine) {
			for name, o := range others {
				m.until(name+" is served", func() bool { return o.asked.Load() > 0 })
				if n := o.refused.Load(); n > 0 {
					m.t.Errorf("of %d lists for %s %d are refused", o.asked.Load(), name, n)
				}
				m.t.Logf("%s is served %d times", name, o.asked.Load())
			}
		}})
	}
	return out
}
