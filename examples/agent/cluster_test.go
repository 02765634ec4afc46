package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

// clusterLab is a lab whose agent is a node of a cluster that is an API server
// in memory.
type clusterLab struct {
	*lab
	api  *kubeapitest.Server
	port int
}

func newClusterLab(t *testing.T) *clusterLab { return clusterLabOf(t, newLab(t)) }

// clusterLabOf has the agent of a lab be a node.
func clusterLabOf(t *testing.T, of *lab) *clusterLab {
	l := &clusterLab{lab: of, api: kubeapitest.New()}
	l.api.Handle("tokenreviews", func(_ kubeapitest.Request, body runtime.Object) (runtime.Object, error) {
		r := body.(*authenticationv1.TokenReview)
		r.Status.Authenticated = r.Spec.Token == "good" || r.Spec.Token == "weak"
		r.Status.User.Username = r.Spec.Token
		return r, nil
	})
	l.api.Handle("subjectaccessreviews", func(_ kubeapitest.Request, body runtime.Object) (runtime.Object, error) {
		r := body.(*authorizationv1.SubjectAccessReview)
		r.Status.Allowed = r.Spec.User == "good" || r.Spec.ResourceAttributes.Subresource == "metrics"
		return r, nil
	})
	srv := httptest.NewTLSServer(l.api)
	t.Cleanup(func() {
		l.api.Stop() // which ends its watches
		srv.CloseClientConnections()
		srv.Close()
	})
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	kubeconfig := filepath.Join(filepath.Dir(l.manifests), "kubeconfig")
	l.must(os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}],
users: [{name: c, user: {token: node}}], contexts: [{name: c, context: {cluster: c, user: c}}]}`, srv.URL, ca), 0o600))
	l.port = testprogram.Port(t)
	l.configure(fmt.Sprintf("address: 127.0.0.1\nport: %d\nnodeStatusUpdateFrequency: 1s\n", l.port))
	l.args = []string{"--kubeconfig", kubeconfig}
	return l
}

// eventually waits until ask has no error.
func (l *clusterLab) eventually(what string, ask func() error) {
	l.t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("%s: not within %v: %v", what, testTimeout, err)
		}
	}
}

func (l *clusterLab) nodeIs(want v1.ConditionStatus) {
	l.t.Helper()
	l.eventually("node ready: "+string(want), func() error {
		n, _ := l.api.Get(&v1.Node{}, "", "lab").(*v1.Node)
		if n == nil {
			return errors.New("there is none")
		}
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == want {
				return nil
			}
		}
		return fmt.Errorf("%+v", n.Status.Conditions)
	})
}

// bound is a pod that a scheduler has given the node.
func bound(name string) *v1.Pod {
	grace := int64(1)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1.PodSpec{
			NodeName: "lab", RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, DNSPolicy: v1.DNSDefault,
			NodeSelector: map[string]string{"given": "by-the-api"},
			Containers: []v1.Container{{
				Name: "main", Image: sampleimage.Testbox, ImagePullPolicy: v1.PullNever, Args: []string{"env", "SECRET", "out", "ready", "sleep", "forever"},
				Env: []v1.EnvVar{{Name: "SECRET", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
					LocalObjectReference: v1.LocalObjectReference{Name: "sec"}, Key: "key",
				}}}},
			}},
		},
	}
}

func (l *clusterLab) running(name string) (id string) {
	l.t.Helper()
	l.eventually(name+" is shown as ready", func() error {
		p, _ := l.api.Get(&v1.Pod{}, "default", name).(*v1.Pod)
		if p == nil || !ready(p) {
			return fmt.Errorf("%+v", p)
		}
		id = containerID(p, "main")
		return nil
	})
	return id
}

func TestNodeOfACluster(t *testing.T) {
	l := newClusterLab(t)
	l.api.Create(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "sec"}, Data: map[string][]byte{"key": []byte("hidden")}})
	// Somebody has made the node before, with a label that counts at admission.
	l.api.Create(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lab", Labels: map[string]string{"given": "by-the-api"}}})
	l.write("static.yaml", box("static", "sleep, forever"))
	l.start()
	l.nodeIs(v1.ConditionTrue)
	l.eventually("the lease is held", func() error {
		lease, _ := l.api.Get(&coordinationv1.Lease{}, "kube-node-lease", "lab").(*coordinationv1.Lease)
		if lease == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "lab" {
			return fmt.Errorf("%+v", lease)
		}
		return nil
	})

	l.api.Create(bound("a"))
	id := l.running("a")
	l.eventually("the static pod has a ready mirror", func() error {
		p, _ := l.api.Get(&v1.Pod{}, "default", "static-lab").(*v1.Pod)
		if p == nil || p.Annotations[v1.MirrorPodAnnotationKey] == "" || !ready(p) {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	l.eventually("events are there", func() error {
		for _, o := range l.api.All(kubeapi.Events) {
			if e := o.(*v1.Event); e.InvolvedObject.Name == "a" && e.Reason == "Started" {
				return nil
			}
		}
		return errors.New("no Started")
	})
	l.nodeAPI()

	// The cluster goes, the agent dies, and both come back: nothing is touched.
	l.api.Stop()
	l.kill()
	l.start()
	l.untilReady("a", "static")
	l.api.Start()
	l.nodeIs(v1.ConditionTrue)
	if again := l.running("a"); again != id {
		t.Errorf("container %s was replaced by %s", id, again)
	}

	l.api.Delete(kubeapi.Pods, "default", "a")
	l.eventually("the pod is gone", func() error {
		if p := l.api.Get(&v1.Pod{}, "default", "a"); p != nil {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	l.untilGone("a")
	l.remove("static.yaml")
	l.eventually("the mirror is gone", func() error {
		if p := l.api.Get(&v1.Pod{}, "default", "static-lab"); p != nil {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
}

// nodeGet asks the node with a token, or without one if that is "".
func (l *clusterLab) nodeGet(path, token string) (code int, body string) {
	l.t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // self-signed
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", l.port, path), nil)
	l.must(err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	l.must(err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	l.must(err)
	return res.StatusCode, string(b)
}

// nodeAPI asks the node as an API server would, and as those who may not.
func (l *clusterLab) nodeAPI() {
	l.t.Helper()
	get := l.nodeGet
	// A container runs before its program has written anything.
	l.eventually("the container has logged", func() error {
		if code, body := get("/containerLogs/default/a/main", "good"); code != 200 || !strings.Contains(body, "ready") {
			return fmt.Errorf("%d %.300q", code, body)
		}
		return nil
	})
	for _, tc := range []struct {
		path, token string
		code        int
		want        string
	}{
		{"/healthz", "good", 200, "ok"},
		{"/pods", "good", 200, `"a"`},
		{"/runningpods/", "good", 200, `"a"`},
		{"/containerLogs/default/a/none", "good", 404, ""},
		{"/stats/summary", "good", 200, `"podRef"`},
		{"/metrics", "weak", 200, "kubelet_running_pods"},
		{"/metrics", "good", 200, `rest_client_requests_total{code="200",host="127.0.0.1:`},
		{"/metrics/resource", "good", 200, "pod_memory_working_set_bytes"},
		{"/metrics/cadvisor", "good", 200, "container_memory_working_set_bytes"},
		{"/metrics/probes", "good", 200, ""},
		{"/configz", "good", 200, `"kubeletconfig"`},
		{"/pods", "", 401, ""},
		{"/pods", "bad", 401, ""},
		{"/pods", "weak", 403, "nodes"},
		{"/no/such", "", 401, ""},
	} {
		if code, body := get(tc.path, tc.token); code != tc.code || !strings.Contains(body, tc.want) {
			l.t.Errorf("%s as %q: %d %.300q; want %d with %q", tc.path, tc.token, code, body, tc.code, tc.want)
		}
	}
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", l.port), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // self-signed
	l.must(err)
	if c := conn.ConnectionState().PeerCertificates[0]; c.VerifyHostname("lab") != nil || c.PublicKeyAlgorithm == x509.UnknownPublicKeyAlgorithm {
		l.t.Errorf("certificate of %v", c.Subject)
	}
	l.must(conn.Close())
}
