package agent

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/criruntimetest"
	"github.com/nodewright/nodewright/podspec"
)

func TestHandlers(t *testing.T) {
	rt := criruntimetest.New()
	class := func(name string) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{RuntimeClassName: &name}} }
	recursive := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{VolumeMounts: []v1.VolumeMount{{RecursiveReadOnly: new(v1.RecursiveReadOnlyMode)}}}}}}
	both := podspec.HandlerFeatures{UserNamespaces: true, RecursiveReadOnly: true}
	for _, tc := range []struct {
		name     string
		pod      *v1.Pod
		handler  string
		features podspec.HandlerFeatures
		wrong    string
		asks     int
	}{
		{"a plain pod", &v1.Pod{}, "", podspec.HandlerFeatures{}, "", 0},
		{"an empty class", class(""), "", podspec.HandlerFeatures{}, "", 0},
		{"its own users", apart("a"), "", both, "", 1},
		{"read-only to the ground", recursive, "", both, "", 1},
		{"a class", class("plain"), "plain", podspec.HandlerFeatures{}, "", 1},
		{"no such class", class("kata"), "kata", podspec.HandlerFeatures{}, `spec.runtimeClassName: "kata": the runtime has no such handler, but "", "plain"`, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rt.ForgetCalls()
			h := handlers{runtime: rt}
			for range 2 { // the second answer is remembered
				name, f, err := h.forPod(t.Context(), tc.pod)
				said := ""
				if err != nil {
					said = err.Error()
				}
				if name != tc.handler || f != tc.features || said != tc.wrong {
					t.Errorf("%q, %+v, %q; want %q, %+v, %q", name, f, said, tc.handler, tc.features, tc.wrong)
				}
			}
			if n := len(rt.Calls("Status")); n != tc.asks {
				t.Errorf("%d calls, want %d", n, tc.asks)
			}
		})
	}
}

func TestHandlersAreAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := criruntimetest.New()
		h := handlers{runtime: rt}
		down := errors.New("down")
		rt.FailNext("Status", 1, down)
		if _, _, err := h.forPod(t.Context(), apart("a")); !errors.Is(err, down) {
			t.Errorf("error %v, want the runtime's", err)
		}
		for _, wait := range []time.Duration{0, handlersLast - 1, 1} {
			time.Sleep(wait)
			if _, _, err := h.forPod(t.Context(), apart("a")); err != nil {
				t.Error(err)
			}
		}
		if n := len(rt.Calls("Status")); n != 3 {
			t.Errorf("%d calls, want the one that failed, one, and another after %v", n, handlersLast)
		}
	})
}
