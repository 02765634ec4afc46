package local_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
)

// fitter says of every pod the same.
type fitter struct {
	fakeAgent
	answer local.Fit
	asked  *v1.Pod
	beside []*v1.Pod
}

func (f *fitter) Fit(pod *v1.Pod, beside ...*v1.Pod) local.Fit {
	f.asked, f.beside = pod, beside
	return f.answer
}

func serveFit(t *testing.T, a local.Agent) *local.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := local.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: local.Handler(a, nil), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return local.NewClient(socket)
}

func TestFit(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	pod.Name = "p"
	f := &fitter{}
	c := serveFit(t, f)
	for _, want := range []local.Fit{
		{Fits: true, Containers: []local.FitContainer{{
			Name: "c", CPUs: "2-3", Own: true, MemoryNodes: "0", Memory: map[string]uint64{"memory": 1 << 30}, Hint: local.FitHint{Nodes: "0", Preferred: true},
		}}, Steps: []string{"container c: fine"}},
		{Reason: "OutOfcpu", Message: "no", RetryUntil: time.Unix(1700000000, 0).UTC()},
	} {
		f.answer = want
		got, err := c.Fit(t.Context(), pod)
		if err != nil || !reflect.DeepEqual(got, []local.Fit{want}) || f.asked.Name != "p" || f.asked.Spec.Containers[0].Name != "c" {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	for fits, want := range map[bool]int{true: 2, false: 0} { // those before it that fit are beside the last pod
		f.answer = local.Fit{Fits: fits}
		if got, err := c.Fit(t.Context(), pod, pod, pod); err != nil || len(got) != 3 || len(f.beside) != want {
			t.Errorf("%d answers, %v, %d pods beside the last one, want %d", len(got), err, len(f.beside), want)
		}
	}
	large := pod.DeepCopy()
	large.Annotations = map[string]string{"a": strings.Repeat("x", 17<<20)}
	if _, err := c.Fit(t.Context(), large); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a pod of 17 MiB: %v", err)
	}
	if _, err := serveFit(t, &fakeAgent{}).Fit(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "cannot check") {
		t.Errorf("an agent that cannot tell: %v", err)
	}
}

// A request about a pod that would cost far more than its size says is refused at
// once.
func TestFitOfCostlyPods(t *testing.T) {
	f := &fitter{}
	h := local.Handler(f, nil)
	for name, body := range map[string]string{
		"a quantity without end":  `{"items":[{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1e-2000000000"}}}]}}]}`,
		"a million of containers": `{"items":[{"spec":{"containers":[` + strings.Repeat("{},", 1<<20-100) + `{}]}}]}`,
	} {
		done := make(chan *httptest.ResponseRecorder, 1)
		go func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/fit", strings.NewReader(body)))
			done <- w
		}()
		select {
		case w := <-done:
			if w.Code != http.StatusBadRequest || f.asked != nil {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s: no answer", name)
		}
	}
}
