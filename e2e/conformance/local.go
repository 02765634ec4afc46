package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// localAddress is the address of the agent's own API server.
const localAddress = "127.0.0.1:6443"

// forLocal sets the defaults for a node that is its own API server: the specs of sig-node and
// sig-storage that are called conformance.
func (o *options) forLocal() {
	set := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if !set["labels"] {
		o.labels = "Conformance && (sig-node || sig-storage) && !Serial && !Disruptive"
	}
}

// startLocal starts a node that is its own API server.
func (m *machine) startLocal(ctx context.Context) error {
	if err := m.startRuntime(ctx); err != nil {
		return err
	}
	if err := m.startAgent(ctx); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, m.o.agent, "kubeconfig", "--root-dir", kubeletRoot).Output()
	if err != nil {
		return fmt.Errorf("run agent kubeconfig: %w", err)
	}
	if m.front, err = front(out); err != nil {
		return err
	}
	m.kubeconfig = filepath.Join(m.o.out, "kubeconfig")
	if err := os.WriteFile(m.kubeconfig, fmt.Appendf(nil, kubeconfigText, "none", m.front.URL), 0o600); err != nil {
		return err
	}
	wait := exec.CommandContext(ctx, filepath.Join(m.o.bin, "cluster"), "kubectl", "--kubeconfig", m.kubeconfig, "wait", "--for=condition=Ready", "node/"+nodeName, "--timeout=120s")
	if out, err := wait.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl wait: %w: %s", err, out)
	}
	return nil
}

// localSuite returns the program of the suite and its arguments.
func (m *machine) localSuite() (program string, args []string, err error) {
	args, err = m.e2eFlags()
	return filepath.Join(m.o.bin, "e2e.test"), append(args, "--e2e-verify-service-account=false", "--minStartupPods=0"), err
}

// kubernetesService is the only object that the suite requires before it begins. The suite reads
// the cluster's IP families from it.
const kubernetesService = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"kubernetes","namespace":"default"},"spec":{"clusterIP":"10.0.0.1","ports":[{"port":443}]}}`

// front starts a proxy for the agent's API that adds kubernetesService to it.
func front(kubeconfig []byte) (*httptest.Server, error) {
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	secure, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	secure.NextProtos = []string{"http/1.1"} // streams take connections over
	to, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, errors.Join(err, fmt.Errorf("server %q", cfg.Host))
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     &http.Transport{TLSClientConfig: secure, MaxIdleConnsPerHost: 100},
		FlushInterval: -1, // of watches
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces/default/services/kubernetes" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(kubernetesService))
			return
		}
		proxy.ServeHTTP(w, r)
	})), nil
}
