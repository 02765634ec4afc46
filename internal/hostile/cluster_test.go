//go:build !race

package hostile

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

// cluster is what a machine is a node of.
type cluster struct {
	*machine
	server *kubeapitest.Server
	port   int // of the node's API, which anybody may ask
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{machine: newMachine(t), server: kubeapitest.New()}
	srv := httptest.NewUnstartedServer(c.server)
	srv.EnableHTTP2 = true // as API servers have it: one connection for all
	srv.StartTLS()
	t.Cleanup(func() {
		c.server.Stop() // which ends its watches
		srv.CloseClientConnections()
		srv.Close()
	})
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	c.must(os.WriteFile(c.path("kubeconfig"), fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}],
users: [{name: c, user: {token: node}}], contexts: [{name: c, context: {cluster: c, user: c}}]}`, srv.URL, ca), 0o600))
	c.port = testprogram.Port(t)
	c.configure(fmt.Sprintf(`address: 127.0.0.1
port: %d
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
`, c.port))
	c.args = []string{"--kubeconfig", c.path("kubeconfig")}
	c.server.Create(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	return c
}

// give binds a pod to the node.
func (c *cluster) give(name string) {
	grace, none, mode := int64(1), false, int32(0o400) // an API server fills in modes
	c.server.Create(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1.PodSpec{
			NodeName: "node", RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
			DNSPolicy: v1.DNSDefault, AutomountServiceAccountToken: &none,
			Containers: []v1.Container{{
				Name: "c", Image: image, ImagePullPolicy: v1.PullIfNotPresent, Args: []string{"out", "hello", "sleep", "forever"},
				EnvFrom:      []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "of-" + name}}}},
				VolumeMounts: []v1.VolumeMount{{Name: "s", MountPath: "/s"}},
			}},
			Volumes: []v1.Volume{{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "of-" + name, DefaultMode: &mode}}}},
		},
	})
}

// refer makes what a pod refers to.
func (c *cluster) refer(name string) {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "of-" + name}
	c.server.Create(&v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"KEY": name}})
	c.server.Create(&v1.Secret{ObjectMeta: meta, Data: map[string][]byte{"key": []byte(name)}})
}

// shown are the phases of the pods that the server has.
func (c *cluster) shown() string {
	p := phases{}
	for _, o := range c.server.All(kubeapi.Pods) {
		p[string(o.(*v1.Pod).Status.Phase)]++
	}
	return p.String()
}

// Pods of an API server come and go, each with objects of its own.
func TestAPIPods(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short")
	}
	const each = 50
	c := newCluster(t)
	c.start()
	c.lives(*lives/each, func(n int) {
		name := func(i int) string { return fmt.Sprintf("p%d-%d", n, i) }
		for i := range each {
			c.refer(name(i))
			c.give(name(i))
		}
		c.until("the pods run", func() bool { return c.shown() == phases{"Running": each}.String() })
		for i := range each {
			c.server.Delete(kubeapi.Pods, "default", name(i))
		}
		c.until("the pods are gone", func() bool { return c.shown() == phases{}.String() && c.phases() == phases{}.String() })
		for i := range each {
			c.server.Remove(kubeapi.ConfigMaps, "default", "of-"+name(i))
			c.server.Remove(kubeapi.Secrets, "default", "of-"+name(i))
		}
		for _, o := range c.server.All(kubeapi.Events) {
			e := o.(*v1.Event)
			c.server.Remove(kubeapi.Events, e.Namespace, e.Name)
		}
		c.server.ForgetRequests()
		c.server.Compact()
	})
	c.stop()
}

// The node's API is asked for logs and for commands, by callers who wait for
// the answer and by those who do not.
func TestRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short")
	}
	const each = 50
	c := newCluster(t)
	backend := httptest.NewServer(http.HandlerFunc(stream))
	t.Cleanup(backend.Close)
	c.lies(func(_ string, _, answer any) error {
		if a, ok := answer.(*runtimeapi.ExecResponse); ok {
			a.Url = backend.URL + "/exec"
		}
		return nil
	})
	c.start()
	c.refer("p")
	c.give("p")
	c.until("the pod runs", func() bool { return c.shown() == phases{"Running": 1}.String() })
	c.lives(*lives/each, func(int) {
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				for i := range each / 5 {
					c.request(i)
				}
			})
		}
		all.Wait()
	})
	c.stop()
}

// stream is the runtime's end of a stream: it says something and ends.
func stream(w http.ResponseWriter, _ *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n" + strings.Repeat("x", 10_000))
	_ = rw.Flush()
}

// request makes one of the usual requests; i says which.
func (c *cluster) request(i int) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // self-signed
	conn, err := d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", c.port))
	if err != nil {
		c.t.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	method, path, header, want, leave := http.MethodGet, "", "Connection: close\r\n", http.StatusOK, false
	switch i % 5 {
	case 0:
		path = "/containerLogs/default/p/c"
	case 1: // whoever follows a log goes without a word
		path, leave = "/containerLogs/default/p/c?follow=true", true
	case 2:
		method, path = http.MethodPost, "/run/default/p/c?cmd=exit&cmd=0"
	case 3:
		method, path = http.MethodPost, "/exec/default/p/c?command=x&output=1"
		header, want = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n", http.StatusSwitchingProtocols
	case 4:
		path, want = fmt.Sprintf("/containerLogs/default/none-%d/c", i), http.StatusNotFound
	}
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\n%s\r\n", method, path, header); err != nil {
		c.t.Error(err)
		return
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		c.t.Errorf("%s: %v", path, err)
		return
	}
	if resp.StatusCode != want {
		c.t.Errorf("%s: %s, want %d", path, resp.Status, want)
	}
	switch {
	case leave:
		_ = conn.Close()
	case want == http.StatusSwitchingProtocols:
		_, _ = io.Copy(io.Discard, r)
	default:
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	_ = resp.Body.Close()
}
