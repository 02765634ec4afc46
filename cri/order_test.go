package cri_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/cri/observed"
)

// Attempts order instances, then what runs, then the time of creation: no
// clock makes an older instance the newer one.
func TestAttemptsOrderInstances(t *testing.T) {
	const hour = time.Hour
	type instance struct {
		attempt uint32
		clock   time.Duration
		ends    bool
	}
	for _, tc := range []struct {
		name      string
		instances []instance // each in a sandbox of its own
		want      string
	}{
		{"clock set back by an hour", []instance{{0, 0, true}, {1, -hour, false}}, "1 0"},
		{"clock set back twice", []instance{{0, 0, true}, {1, -hour, true}, {2, -2 * hour, false}}, "2 1 0"},
		{"clock set forward", []instance{{0, hour, true}, {1, 0, false}}, "1 0"},
		{"as many attempts, one runs", []instance{{1, 0, false}, {1, hour, true}}, "0 1"},
		{"as many attempts, both run", []instance{{1, 0, false}, {1, hour, false}}, "1 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rt := critest.New()
			rt.AddImage("i")
			labels := map[string]string{cri.LabelPodUID: "u", cri.LabelPodName: "p", cri.LabelPodNamespace: "ns"}
			var sandboxes, containers []string
			for i, in := range tc.instances {
				rt.SetClock(in.clock)
				// Names that differ: the same attempt twice is what an agent without a full list makes.
				s, err := rt.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
					Metadata: &runtimeapi.PodSandboxMetadata{Name: fmt.Sprint("p", i), Uid: "u", Namespace: "ns", Attempt: in.attempt}, Labels: labels,
				}, "")
				if err != nil {
					t.Fatal(err)
				}
				c, err := rt.CreateContainer(t.Context(), s, &runtimeapi.ContainerConfig{
					Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: in.attempt}, Image: &runtimeapi.ImageSpec{Image: "i"},
					Args: []string{"sleep", "forever"}, Labels: labels,
				}, nil)
				if err == nil {
					err = rt.StartContainer(t.Context(), c)
				}
				if err == nil && in.ends {
					err = rt.StopPodSandbox(t.Context(), s)
				}
				if err != nil {
					t.Fatal(err)
				}
				sandboxes, containers = append(sandboxes, s), append(containers, c)
			}
			p, err := cri.NewReader(rt).Inspect(t.Context(), "u")
			if err != nil {
				t.Fatal(err)
			}
			var gotS, gotC []string
			for i := range p.Sandboxes {
				gotS = append(gotS, fmt.Sprint(slices.Index(sandboxes, p.Sandboxes[i].ID)))
			}
			for i := range p.Containers {
				gotC = append(gotC, fmt.Sprint(slices.Index(containers, p.Containers[i].ID)))
			}
			if s, c := strings.Join(gotS, " "), strings.Join(gotC, " "); s != tc.want || c != tc.want {
				t.Errorf("sandboxes %s, containers %s, want %s", s, c, tc.want)
			}
		})
	}
}

func TestSurplus(t *testing.T) {
	p := &observed.Pod{Containers: []observed.Container{
		{ID: "a2", Name: "a", State: observed.Exited}, {ID: "a1", Name: "a", State: observed.Running},
		{ID: "b1", Name: "b", State: observed.Running}, {ID: "b0", Name: "b", State: observed.Exited},
		{ID: "a0", Name: "a", State: observed.Running},
	}}
	var ids []string
	for _, c := range p.Surplus() {
		ids = append(ids, c.ID)
	}
	if got := strings.Join(ids, " "); got != "a1 a0" {
		t.Errorf("surplus %q, want a1 a0", got)
	}
	if s := (*observed.Pod)(nil).Surplus(); s != nil {
		t.Errorf("surplus of no pod: %v", s)
	}
}
