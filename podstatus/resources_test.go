package podstatus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/cri/observed"
)

// resourcesOf reads resource requirements from YAML.
func resourcesOf(t *testing.T, text string) v1.ResourceRequirements {
	t.Helper()
	var r v1.ResourceRequirements
	if err := yaml.UnmarshalStrict([]byte("{"+text+"}"), &r); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

// amounts writes a list as name=amount, in order.
func amounts(l v1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		q := l[name]
		out = append(out, fmt.Sprintf("%s=%s", name, q.String()))
	}
	return strings.Join(out, " ")
}

func both(r *v1.ResourceRequirements) string {
	if r == nil {
		return "none"
	}
	return amounts(r.Requests) + " | " + amounts(r.Limits)
}

var inProgress = []v1.PodCondition{{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}}

// What is in force while the node puts what it has granted into force.
func TestResourcesOfAResize(t *testing.T) {
	const (
		small = "requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}"
		large = "requests: {cpu: 1, memory: 2Gi}, limits: {cpu: 2, memory: 2Gi}"
	)
	shownSmall := &observed.Resources{CPUPeriod: 100000, CPUQuota: 100000, CPUShares: 512, MemoryLimit: 1 << 30}
	shownLarge := &observed.Resources{CPUPeriod: 100000, CPUQuota: 200000, CPUShares: 1024, MemoryLimit: 2 << 30}
	for _, tc := range []struct {
		name             string
		asked, allocated string // the pod's container; allocated "" means no other than asked
		shown            *observed.Resources
		before           string
		resizing, exited bool
		other            bool // what was before was another run of the container
		allocatedWant    string
		want             string
	}{
		{name: "asked for, not granted", asked: large, allocated: small, shown: shownSmall, before: small,
			allocatedWant: "cpu=500m memory=1Gi", want: "cpu=500m memory=1Gi | cpu=1 memory=1Gi"},
		{name: "granted, not in force", asked: large, shown: shownSmall, before: small, resizing: true,
			allocatedWant: "cpu=1 memory=2Gi", want: "cpu=500m memory=1Gi | cpu=1 memory=1Gi"},
		{name: "half of it in force", asked: large, before: small, resizing: true,
			shown:         &observed.Resources{CPUPeriod: 100000, CPUQuota: 200000, CPUShares: 512, MemoryLimit: 2 << 30},
			allocatedWant: "cpu=1 memory=2Gi", want: "cpu=500m memory=1Gi | cpu=2 memory=2Gi"},
		{name: "in force", asked: large, shown: shownLarge, before: small, allocatedWant: "cpu=1 memory=2Gi", want: "cpu=1 memory=2Gi | cpu=2 memory=2Gi"},
		{name: "another run begins with what was granted", asked: large, shown: shownLarge, before: small, resizing: true, other: true,
			allocatedWant: "cpu=1 memory=2Gi", want: "cpu=1 memory=2Gi | cpu=2 memory=2Gi"},
		{name: "one that does not run", asked: large, allocated: small, shown: shownLarge, before: large, exited: true,
			allocatedWant: "cpu=500m memory=1Gi", want: "cpu=500m memory=1Gi | cpu=1 memory=1Gi"},
		{name: "silent runtime", asked: large, before: small, resizing: true, allocatedWant: "cpu=1 memory=2Gi", want: "cpu=500m memory=1Gi | cpu=1 memory=1Gi"},
		{name: "a runtime without shares", asked: large, shown: &observed.Resources{MemoryLimit: 1 << 30}, before: small, resizing: true,
			allocatedWant: "cpu=1 memory=2Gi", want: "cpu=500m memory=1Gi | cpu=1 memory=1Gi"},
		{name: "nor of anything, with nothing to do", asked: large, shown: &observed.Resources{}, before: small,
			allocatedWant: "cpu=1 memory=2Gi", want: "cpu=1 memory=2Gi | cpu=2 memory=2Gi"},
		{name: "limits are new", asked: large, before: "requests: {cpu: 500m, memory: 1Gi}", resizing: true, shown: &observed.Resources{CPUShares: 512},
			allocatedWant: "cpu=1 memory=2Gi", want: "cpu=500m memory=1Gi | "},
		{name: "limits are given up", asked: "requests: {cpu: 500m}", before: small, resizing: true, shown: shownSmall,
			allocatedWant: "cpu=500m", want: "cpu=500m memory=1Gi | cpu=1 memory=1Gi"},
		{name: "up from the least that a cgroup shows", asked: "requests: {cpu: 1}", before: "requests: {cpu: 1m}", resizing: true, shown: &observed.Resources{CPUShares: 2},
			allocatedWant: "cpu=1", want: "cpu=2m | "},
		{name: "down to it", asked: "requests: {cpu: 1m}", before: "requests: {cpu: 1}", resizing: true, shown: &observed.Resources{CPUShares: 1024},
			allocatedWant: "cpu=1m", want: "cpu=1 | "},
		{name: "no request at all", asked: "limits: {memory: 1Gi}", shown: &observed.Resources{CPUShares: 2, MemoryLimit: 1 << 30}, allocatedWant: "", want: " | memory=1Gi"},
		{name: "more than shares can tell", asked: "requests: {cpu: 300}", shown: &observed.Resources{CPUShares: 262144}, allocatedWant: "cpu=300", want: "cpu=300 | "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(always, nil, "c")
			p.Spec.Containers[0].Resources = resourcesOf(t, tc.asked)
			o := instance("1", observed.Running, 0, 0)
			if tc.exited {
				o.State = observed.Exited
			}
			o.Resources = tc.shown
			in := Input{Pod: p, Observed: &observed.Pod{Containers: []observed.Container{o}}}
			if tc.allocated != "" {
				in.Allocated = p.DeepCopy()
				in.Allocated.Spec.Containers[0].Resources = resourcesOf(t, tc.allocated)
			}
			if tc.before != "" {
				id := "1"
				if tc.other {
					id = "0"
				}
				in.Previous = was(running("c"), id, 0)
				before := resourcesOf(t, tc.before)
				in.Previous.ContainerStatuses[0].Resources = &before
			}
			if tc.resizing {
				in.Resize = inProgress
			}
			s := ContainerStatuses(in, RegularContainers)[0]
			if got := amounts(s.AllocatedResources); got != tc.allocatedWant {
				t.Errorf("allocated %q, want %q", got, tc.allocatedWant)
			}
			if got := both(s.Resources); got != tc.want {
				t.Errorf("in force %q, want %q", got, tc.want)
			}
		})
	}
}

// A container of any list has what was granted to the one of its name.
func TestGrantedByName(t *testing.T) {
	p := podOf(always, []v1.Container{sidecar("s")}, "b", "a")
	granted := p.DeepCopy()
	granted.Spec.Containers = slices.Clone(granted.Spec.Containers)
	granted.Spec.InitContainers[0].Resources = resourcesOf(t, "requests: {cpu: 1}")
	granted.Spec.Containers[1].Resources = resourcesOf(t, "requests: {cpu: 2}")
	granted.Spec.Containers = granted.Spec.Containers[1:] // knows nothing of b
	p.Spec.Containers[0].Resources = resourcesOf(t, "requests: {cpu: 3}")
	obs := &observed.Pod{}
	for _, name := range []string{"s", "a", "b"} {
		obs.Containers = append(obs.Containers, observe(observed.Running, name, 0, 0, 1))
	}
	in := Input{Pod: p, Allocated: granted, Observed: obs}
	st := Of(in)
	got := map[string]string{}
	for _, s := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		got[s.Name] = amounts(s.AllocatedResources)
	}
	if want := map[string]string{"s": "cpu=1", "a": "cpu=2", "b": "cpu=3"}; !maps.Equal(got, want) {
		t.Errorf("allocated %v, want %v", got, want)
	}
}

func TestPodResources(t *testing.T) {
	for _, tc := range []struct {
		name, pod, allocated string // the pod's own resources
		previous             *v1.PodStatus
		resizing             bool
		allocatedWant, want  string
	}{
		{name: "none of its own: what its containers request", allocatedWant: "cpu=3", want: "none"},
		{name: "its own", pod: "requests: {cpu: 4, memory: 1Gi}, limits: {cpu: 5}", allocatedWant: "cpu=4 memory=1Gi", want: "cpu=4 memory=1Gi | cpu=5"},
		{name: "limits alone", pod: "limits: {memory: 1Gi}", allocatedWant: "cpu=3", want: " | memory=1Gi"},
		{name: "not granted yet", pod: "requests: {cpu: 9}", allocated: "requests: {cpu: 4}", allocatedWant: "cpu=4", want: "cpu=4 | "},
		{name: "granted, not in force", pod: "requests: {cpu: 9}", resizing: true,
			previous:      &v1.PodStatus{Resources: &v1.ResourceRequirements{Requests: resourcesOf(t, "requests: {cpu: 4}").Requests}},
			allocatedWant: "cpu=9", want: "cpu=4 | "},
		{name: "in force", pod: "requests: {cpu: 9}",
			previous:      &v1.PodStatus{Resources: &v1.ResourceRequirements{Requests: resourcesOf(t, "requests: {cpu: 4}").Requests}},
			allocatedWant: "cpu=9", want: "cpu=9 | "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(always, nil, "a", "b")
			p.Spec.Containers[0].Resources = resourcesOf(t, "requests: {cpu: 1}")
			p.Spec.Containers[1].Resources = resourcesOf(t, "requests: {cpu: 2}")
			p.Spec.Overhead = resourcesOf(t, "requests: {cpu: 100}").Requests // asked for by no container
			in := Input{Pod: p, Previous: tc.previous, Now: now}
			own := func(text string) *v1.ResourceRequirements {
				r := resourcesOf(t, text)
				return &r
			}
			if tc.pod != "" {
				p.Spec.Resources = own(tc.pod)
			}
			if tc.allocated != "" {
				in.Allocated = p.DeepCopy()
				in.Allocated.Spec.Resources = own(tc.allocated)
			}
			if tc.resizing {
				in.Resize = inProgress
			}
			st := Of(in)
			if got := amounts(st.AllocatedResources); got != tc.allocatedWant {
				t.Errorf("allocated %q, want %q", got, tc.allocatedWant)
			}
			if got := both(st.Resources); got != tc.want {
				t.Errorf("in force %q, want %q", got, tc.want)
			}
			st.AllocatedResources["cpu"] = st.AllocatedResources["none"] // is the caller's
			if q := p.Spec.Containers[0].Resources.Requests["cpu"]; q.IsZero() {
				t.Error("the pod was changed")
			}
		})
	}
	if st := Of(Input{Pod: podOf(always, nil, "c")}); st.AllocatedResources != nil || st.Resources != nil {
		t.Errorf("of a pod that asks for nothing: %v, %v", st.AllocatedResources, st.Resources)
	}
}
