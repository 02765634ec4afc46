package localapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
	"github.com/nodewright/nodewright/statusmgr"
)

// A pod that runs is Running in the first answer after a restart, whenever the agent looks at it.
func TestRunningPodsAreNotPendingAfterARestart(t *testing.T) {
	objects, statuses := t.TempDir(), t.TempDir()
	const path = "/api/v1/namespaces/default/pods"
	live := func(test func(s *sink, ask func(method, path, body string) string)) {
		api, err := localapi.New(localapi.Config{Node: "n1", Store: store.NewDir(objects)})
		if err != nil {
			t.Fatal(err)
		}
		kept, err := statusmgr.NewFileSink(statusmgr.FileSinkConfig{Dir: statuses})
		if err != nil {
			t.Fatal(err)
		}
		a := &attached{api: api, sink: &sink{api: api, next: kept}}
		stop := testrun.Start(t, func(ctx context.Context) error { return a.run(ctx, nil) })
		h := api.Handler(localapi.Root)
		test(a.sink, func(method, path, body string) string {
			for {
				r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable { // it has read its files
					return w.Body.String()
				}
			}
		})
		stop()
	}
	live(func(s *sink, ask func(method, path, body string) string) {
		ask("POST", path, `{"metadata":{"name":"web"},"spec":{"containers":[{"name":"c","image":"x"}]}}`)
		uid, _, _ := strings.Cut(strings.SplitN(ask("GET", path+"/web", ""), `"uid":"`, 2)[1], `"`)
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		pod.SetUID(types.UID(uid))
		now := metav1.Now()
		if err := s.Update(t.Context(), pod, v1.PodStatus{Phase: v1.PodRunning, StartTime: &now}); err != nil {
			t.Fatal(err)
		}
	})
	live(func(_ *sink, ask func(method, path, body string) string) {
		if got := ask("GET", path+"/web", ""); !strings.Contains(got, `"phase":"Running"`) {
			t.Errorf("the first answer is %s", got)
		}
	})
}
