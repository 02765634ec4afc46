package localapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

// restClient is client-go's, of one version of a group.
func restClient(t *testing.T, url, media string, gv schema.GroupVersion, add func(*runtime.Scheme) error) *rest.RESTClient {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		t.Fatal(err)
	}
	path := "/apis"
	if gv.Group == "" {
		path = "/api"
	}
	c, err := rest.RESTClientFor(&rest.Config{
		Host: url, APIPath: path, QPS: -1,
		ContentConfig: rest.ContentConfig{
			GroupVersion: &gv, NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(), ContentType: media, AcceptContentTypes: media,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// until waits for a condition of what others do.
func until(t *testing.T, what string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !met(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// Informers of client-go see all that happens, in JSON and in protobuf, and go on when
// the server is another one.
func TestInformers(t *testing.T) {
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(media, func(t *testing.T) {
			a := start(t, &store.Memory{})
			c := restClient(t, a.url, media, v1.SchemeGroupVersion, v1.AddToScheme)
			made := &v1.Pod{}
			if err := c.Post().Namespace("default").Resource("pods").Body(pod("first")).Do(t.Context()).Into(made); err != nil || made.UID == "" || made.Spec.NodeName != "node-1" {
				t.Fatalf("%+v, %v", made, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			lw := cache.NewListWatchFromClient(c, "pods", metav1.NamespaceAll, fields.Everything())
			inf := cache.NewSharedIndexInformer(lw, &v1.Pod{}, 0, nil)
			wg.Go(func() { inf.Run(ctx.Done()) })
			until(t, "the informer has synced", inf.HasSynced)
			for i := range 50 {
				if err := c.Post().Namespace("default").Resource("pods").Body(pod(fmt.Sprint("p", i))).Do(t.Context()).Error(); err != nil {
					t.Fatal(err)
				}
			}
			until(t, "51 pods", func() bool { return len(inf.GetStore().ListKeys()) == 51 })
			if err := a.Update(t.Context(), made, v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1"}); err != nil {
				t.Fatal(err)
			}
			until(t, "a status", func() bool {
				o, ok, _ := inf.GetStore().GetByKey("default/first")
				return ok && o.(*v1.Pod).Status.PodIP == "10.0.0.1"
			})
			zero := int64(0)
			if err := c.Delete().Namespace("default").Resource("pods").Body(&metav1.DeleteOptions{GracePeriodSeconds: &zero}).Do(t.Context()).Error(); err != nil {
				t.Fatal(err)
			}
			until(t, "no pods", func() bool { return len(inf.GetStore().ListKeys()) == 0 })
		})
	}
}

// Who reads nothing of a watch is let go, and holds up nobody.
func TestSlowReader(t *testing.T) {
	a := start(t, &store.Memory{}, func(c *localapi.Config) { c.ReaderTimeout, c.MaxWatches = 100*time.Millisecond, 1 })
	p := must[v1.Pod](a, "POST", pods, asJSON, pod("web"))
	a.watch(pods + "?watch=1") // its body is not read
	for i := range 60 {
		status := v1.PodStatus{Phase: v1.PodRunning, Message: fmt.Sprint(i, strings.Repeat("x", 500_000))}
		if err := a.Update(t.Context(), &p, status); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "a place for another watch", func() bool {
		code, _ := a.do("GET", configMaps+"?watch=1&timeoutSeconds=1&labelSelector=none", "", "")
		return code == http.StatusOK
	})
}
