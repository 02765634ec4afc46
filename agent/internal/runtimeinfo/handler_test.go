package runtimeinfo

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/podspec"
)

func TestHandlers(t *testing.T) {
	rt := critest.New()
	class := func(name string) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{RuntimeClassName: &name}} }
	recursive := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{VolumeMounts: []v1.VolumeMount{{RecursiveReadOnly: new(v1.RecursiveReadOnlyMode)}}}}}}
	both := podspec.HandlerFeatures{UserNamespaces: true, RecursiveReadOnly: true, SupplementalGroupsPolicy: true}
	groups := podspec.HandlerFeatures{SupplementalGroupsPolicy: true} // of the runtime, whatever the handler
	strict := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicy)}}}
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
		{"groups", strict, "", both, "", 1},
		{"a class", class("plain"), "plain", groups, "", 1},
		{"no such class", class("kata"), "kata", groups, `spec.runtimeClassName: "kata": the runtime has no such handler, but "", "plain"`, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rt.ForgetCalls()
			h := Handlers{Runtime: rt}
			for range 2 { // the second answer is remembered
				name, f, err := h.ForPod(t.Context(), tc.pod)
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

// What the loop wants to know of the runtime is known without a call.
func TestGroupsPolicyIsLearnt(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		rt := critest.New()
		if ignores {
			rt.IgnoreGroupsPolicy()
		}
		h := Handlers{Runtime: rt}
		if _, known := h.GroupsPolicy(); known || len(rt.Calls("Status")) > 0 {
			t.Error("known before anybody has asked, or asked for it")
		}
		if err := h.Learn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if supported, known := h.GroupsPolicy(); supported == ignores || !known {
			t.Errorf("supported %t, known %t", supported, known)
		}
	}
}

func TestHandlersAreAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New()
		h := Handlers{Runtime: rt}
		down := errors.New("down")
		rt.FailNext("Status", 1, down)
		if _, _, err := h.ForPod(t.Context(), apart("a")); !errors.Is(err, down) {
			t.Errorf("error %v, want the runtime's", err)
		}
		for _, wait := range []time.Duration{0, handlersLast - 1, 1} {
			time.Sleep(wait)
			if _, _, err := h.ForPod(t.Context(), apart("a")); err != nil {
				t.Error(err)
			}
		}
		if n := len(rt.Calls("Status")); n != 3 {
			t.Errorf("%d calls, want the one that failed, one, and another after %v", n, handlersLast)
		}
	})
}

// apart is a pod with a user namespace of its own.
func apart(uid types.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: v1.PodSpec{HostUsers: new(bool)}}
}
