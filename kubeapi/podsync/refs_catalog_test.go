package podsync_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
)

func refsStart(t *testing.T, srv *kubeapitest.Server, m podsync.CatalogMemory) (*podsync.Catalog, func()) {
	t.Helper()
	c, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
	if err != nil {
		t.Fatal(err)
	}
	cat, err := podsync.NewCatalog(podsync.CatalogConfig{Client: c, Memory: m})
	if err != nil {
		t.Fatal(err)
	}
	return cat, testrun.Start(t, cat.Run)
}

func service(ns, name, ip string) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"a": "b"}},
		Spec: v1.ServiceSpec{ClusterIP: ip, Selector: map[string]string{"a": "b"}, Ports: []v1.ServicePort{{Name: "http", Port: 80, NodePort: 30000}}}}
}

func refsNames(c *podsync.Catalog) string {
	var out []string
	for _, s := range c.Services() {
		out = append(out, s.Namespace+"/"+s.Name+"="+s.Spec.ClusterIP)
	}
	return strings.Join(out, " ")
}

func TestCatalog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, m := kubeapitest.New(), &checkpointtest.Disk{}
		srv.Create(service("default", "kubernetes", "10.0.0.1"))
		srv.Create(service("ns", "headless", "None"))
		srv.Create(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc"})
		c, stop := refsStart(t, srv, m)
		if got := refsNames(c); got != "default/kubernetes=10.0.0.1" {
			t.Errorf("services %s", got)
		}
		if s := c.Services()[0]; s.Labels != nil || s.Spec.Selector != nil || len(s.Spec.Ports) != 1 || s.Spec.Ports[0].NodePort != 0 || s.Spec.Ports[0].Port != 80 {
			t.Errorf("kept %+v", s)
		}
		if h, err := c.Handler(t.Context(), "gvisor"); h != "runsc" || err != nil {
			t.Errorf("handler %q (%v)", h, err)
		}
		if _, err := c.Handler(t.Context(), "kata"); err == nil || !strings.Contains(err.Error(), `"kata" is not found`) {
			t.Errorf("got %v", err)
		}
		srv.Create(service("ns", "web", "10.0.0.2"))
		srv.Create(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata-qemu"})
		srv.Remove(kubeapi.RuntimeClasses, "", "gvisor")
		synctest.Wait()
		if h, err := c.Handler(t.Context(), "kata"); h != "kata-qemu" || err != nil {
			t.Errorf("handler %q (%v)", h, err)
		}
		if _, err := c.Handler(t.Context(), "gvisor"); err == nil {
			t.Error("a class that is gone has a handler")
		}
		srv.Stop()
		time.Sleep(time.Hour)
		if got := refsNames(c); got != "default/kubernetes=10.0.0.1 ns/web=10.0.0.2" {
			t.Errorf("services %s", got)
		}
		stop()

		c, stop = refsStart(t, srv, m)
		begun := time.Now()
		if got := refsNames(c); got != "default/kubernetes=10.0.0.1 ns/web=10.0.0.2" || time.Since(begun) != 2*time.Second {
			t.Errorf("services %s after %v", got, time.Since(begun))
		}
		if h, err := c.Handler(t.Context(), "kata"); h != "kata-qemu" || err != nil {
			t.Errorf("handler %q (%v)", h, err)
		}
		if _, err := c.Handler(t.Context(), "gvisor"); err == nil || !strings.Contains(err.Error(), "not answered") {
			t.Errorf("got %v", err)
		}
		srv.Remove(kubeapi.Services, "ns", "web")
		srv.Start()
		time.Sleep(16 * time.Second)
		if got := refsNames(c); got != "default/kubernetes=10.0.0.1" {
			t.Errorf("services %s", got)
		}
		stop()
	})
}

func TestRefsConfig(t *testing.T) {
	if _, err := podsync.NewCatalog(podsync.CatalogConfig{}); err == nil || !strings.Contains(err.Error(), "Client") {
		t.Errorf("got %v", err)
	}
}
