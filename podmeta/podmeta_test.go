package podmeta

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

func pod(t *testing.T, spec string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	return p
}

func TestSource(t *testing.T) {
	for _, tc := range []struct {
		annotations    map[string]string
		static, mirror bool
	}{
		{nil, false, false},
		{map[string]string{AnnotationSource: "api"}, false, false},
		{map[string]string{AnnotationSource: "file"}, true, false},
		{map[string]string{AnnotationSource: "http"}, true, false},
		{map[string]string{AnnotationMirror: "x"}, false, true},
		{map[string]string{AnnotationSource: "api", AnnotationMirror: ""}, false, true},
	} {
		p := &v1.Pod{}
		p.Annotations = tc.annotations
		if IsStatic(p) != tc.static || IsMirror(p) != tc.mirror || IsCritical(p) != (tc.static || tc.mirror) {
			t.Errorf("%v: static %v, mirror %v, critical %v", tc.annotations, IsStatic(p), IsMirror(p), IsCritical(p))
		}
	}
	for priority, want := range map[int32]bool{0: false, 1999999999: false, 2000000000: true, 2000001000: true} {
		p := &v1.Pod{}
		p.Spec.Priority = &priority
		if IsCritical(p) != want {
			t.Errorf("priority %d: critical %v, want %v", priority, !want, want)
		}
	}
}

func TestRestartsAfter(t *testing.T) {
	const rules = `restartPolicyRules: [
		{action: Restart, exitCodes: {operator: In, values: [42, 43]}},
		{action: Restart, exitCodes: {operator: NotIn, values: [0, 1, 2]}}]`
	for _, tc := range []struct {
		pod, container string
		want           string // after the exit codes 0, 1, 42, 99
	}{
		{"Always", "", "++++"},
		{"OnFailure", "", "-+++"},
		{"Never", "", "----"},
		{"Never", "restartPolicy: Always", "++++"},
		{"Always", "restartPolicy: Never", "----"},
		{"Always", "restartPolicy: OnFailure", "-+++"},
		{"Always", "restartPolicy: Never, " + rules, "--++"},
		{"Never", "restartPolicy: OnFailure, " + rules, "-+++"},
		{"Never", rules, "----"}, // rules take a policy of the container's own
		{"Never", "restartPolicy: Never, restartPolicyRules: [{action: Restart}]", "----"},
		{"Never", "restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: Maybe, values: [1]}}]", "----"},
	} {
		p := pod(t, "{restartPolicy: "+tc.pod+", containers: [{name: c, "+tc.container+"}]}")
		got := ""
		for _, code := range []int32{0, 1, 42, 99} {
			if RestartsAfter(p, &p.Spec.Containers[0], code) {
				got += "+"
			} else {
				got += "-"
			}
		}
		if got != tc.want {
			t.Errorf("pod %s, container %q: %s, want %s", tc.pod, tc.container, got, tc.want)
		}
	}
}

func TestRestartsAllAfter(t *testing.T) {
	const (
		all  = "{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}"
		one  = "{action: Restart, exitCodes: {operator: In, values: [42, 43]}}"
		none = "{action: RestartAllContainers}"
	)
	for _, tc := range []struct {
		container string
		want, can bool
	}{
		{"", false, false},
		{"restartPolicy: Never, restartPolicyRules: [" + one + "]", false, false},
		{"restartPolicy: Never, restartPolicyRules: [" + all + "]", true, true},
		{"restartPolicy: Never, restartPolicyRules: [" + all + ", " + one + "]", true, true},
		{"restartPolicy: Never, restartPolicyRules: [" + one + ", " + all + "]", false, true}, // the first that matches
		{"restartPolicy: Never, restartPolicyRules: [" + none + ", " + all + "]", true, true},
		{"restartPolicyRules: [" + all + "]", false, true}, // rules take a policy of the container's own
	} {
		for _, spec := range []string{
			"{containers: [{name: b}, {name: c, " + tc.container + "}]}",
			"{initContainers: [{name: c, " + tc.container + "}], containers: [{name: b}]}",
		} {
			p := pod(t, spec)
			c := &p.Spec.Containers[len(p.Spec.Containers)-1]
			if len(p.Spec.InitContainers) > 0 {
				c = &p.Spec.InitContainers[0]
			}
			if got := RestartsAllAfter(c, 42); got != tc.want {
				t.Errorf("%s: restarts all %v, want %v", spec, got, tc.want)
			}
			if RestartsAllAfter(c, 1) {
				t.Errorf("%s: restarts all after another exit code", spec)
			}
			if got := CanRestartAll(p); got != tc.can {
				t.Errorf("%s: can restart all %v, want %v", spec, got, tc.can)
			}
			if tc.want && !RestartsAfter(p, c, 42) {
				t.Errorf("%s: all are restarted, and this one is not", spec)
			}
		}
	}
}

func TestQOS(t *testing.T) {
	const full = "requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}"
	one := func(r string) string { return "{containers: [{name: c, resources: {" + r + "}}]}" }
	for _, tc := range []struct {
		name, spec string
		want       v1.PodQOSClass
	}{
		{"nothing", one(""), "BestEffort"},
		{"zeros", one("requests: {cpu: 0}, limits: {memory: 0}"), "BestEffort"},
		{"other resources", one("requests: {example.com/gpu: 1}, limits: {example.com/gpu: 1}"), "BestEffort"},
		{"a request", one("requests: {cpu: 1m}"), "Burstable"},
		{"a limit", one("limits: {memory: 1}"), "Burstable"},
		{"all", one(full), "Guaranteed"},
		{"limits alone", one("limits: {cpu: 1, memory: 1Gi}"), "Guaranteed"},
		{"the same in other words", one("requests: {cpu: 1000m, memory: 1024Mi}, limits: {cpu: 1, memory: 1Gi}"), "Guaranteed"},
		{"less than the limit", one("requests: {cpu: 1, memory: 1Mi}, limits: {cpu: 1, memory: 1Gi}"), "Burstable"},
		{"one resource", one("requests: {cpu: 1}, limits: {cpu: 1}"), "Burstable"},
		{"one container of two", "{containers: [{name: a, resources: {" + full + "}}, {name: b}]}", "Burstable"},
		{"init containers count", "{initContainers: [{name: i}], containers: [{name: a, resources: {" + full + "}}]}", "Burstable"},
		{"ephemeral ones do not", "{ephemeralContainers: [{name: e}], containers: [{name: a, resources: {" + full + "}}]}", "Guaranteed"},
		{"the pod's own", "{resources: {" + full + "}, containers: [{name: a}]}", "Guaranteed"},
		{"the pod's own before its containers'", "{resources: {requests: {cpu: 1}}, containers: [{name: a, resources: {" + full + "}}]}", "Burstable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := pod(t, tc.spec)
			if got := QOS(p); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			p.Status.QOSClass = v1.PodQOSBurstable
			if got := QOS(p); got != v1.PodQOSBurstable {
				t.Errorf("%s, want what the status says", got)
			}
		})
	}
}

func list(l v1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		q := l[name]
		out = append(out, fmt.Sprintf("%s %s", name, q.String()))
	}
	return strings.Join(out, ", ")
}

func TestRequests(t *testing.T) {
	c := func(cpu string) string { return "{resources: {requests: {cpu: " + cpu + "}}}" }
	sidecar := func(cpu string) string {
		return "{restartPolicy: Always, resources: {requests: {cpu: " + cpu + "}}}"
	}
	for _, tc := range []struct{ name, spec, want string }{
		{"nothing", "{containers: [{}]}", ""},
		{"a sum", "{containers: [" + c("1") + ", " + c("500m") + ", {}]}", "cpu 1500m"},
		{"different resources", "{containers: [" + c("1") + ", {resources: {requests: {memory: 1Gi}}}]}", "cpu 1, memory 1Gi"},
		{"limits do not count", "{containers: [{resources: {limits: {cpu: 1}}}]}", ""},
		{"a small init container", "{initContainers: [" + c("1") + "], containers: [" + c("2") + "]}", "cpu 2"},
		{"a large init container", "{initContainers: [" + c("1") + ", " + c("3") + "], containers: [" + c("2") + "]}", "cpu 3"},
		{"a sidecar", "{initContainers: [" + sidecar("1") + "], containers: [" + c("2") + "]}", "cpu 3"},
		{"a sidecar beside a later init container", "{initContainers: [" + sidecar("1") + ", " + c("3") + "], containers: [" + c("2") + "]}", "cpu 4"},
		{"a sidecar after an init container", "{initContainers: [" + c("3") + ", " + sidecar("1") + "], containers: [" + c("1") + "]}", "cpu 3"},
		{"the pod's own", "{resources: {requests: {cpu: 7}}, containers: [{resources: {requests: {cpu: 1, memory: 1Gi}}}]}", "cpu 7, memory 1Gi"},
		{"overhead", "{overhead: {cpu: 250m, memory: 8Mi}, containers: [" + c("1") + "]}", "cpu 1250m, memory 8Mi"},
		{"overhead over the pod's own", "{overhead: {cpu: 1}, resources: {requests: {cpu: 7}}, containers: [{}]}", "cpu 8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := pod(t, tc.spec)
			before := p.DeepCopy()
			got := Requests(p)
			if list(got) != tc.want {
				t.Errorf("%s, want %s", list(got), tc.want)
			}
			for name, q := range got { // it is the caller's
				q.Add(q)
				got[name] = q
			}
			if !equality.Semantic.DeepEqual(p, before) {
				t.Error("the pod was changed")
			}
		})
	}
}

func TestIsHashUID(t *testing.T) {
	for uid, want := range map[types.UID]bool{
		"ef2c2ee52122c55557c1c72ad0f1c7d4":     true,
		"67ab3f63-6a04-4ad7-a7ee-8d3a8e6b3a3d": false,
		"EF2C2EE52122C55557C1C72AD0F1C7D4":     false,
		"ef2c2ee52122c55557c1c72ad0f1c7d":      false,
		"ef2c2ee52122c555/../c72ad0f1c7d4":     false,
		"":                                     false,
	} {
		if got := IsHashUID(uid); got != want {
			t.Errorf("IsHashUID(%q) = %t, want %t", uid, got, want)
		}
	}
}

// SumOf is one resource of Sum, for pods of random containers.
func TestSumOf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	container := func() v1.Container {
		var c v1.Container
		if r.IntN(4) > 0 {
			c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(int64(r.IntN(10)), resource.BinarySI)}
		}
		if r.IntN(2) == 0 {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		return c
	}
	for range 1000 {
		pod := &v1.Pod{}
		for range r.IntN(5) {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container())
		}
		for range r.IntN(3) {
			pod.Spec.Containers = append(pod.Spec.Containers, container())
		}
		all := Sum(pod, LimitsOf)
		if one, want := SumOf(pod, v1.ResourceMemory, LimitsOf), all.Memory().Value(); one != want {
			t.Fatalf("SumOf = %d, want %d, of %+v", one, want, pod.Spec)
		}
	}
}

func TestNewer(t *testing.T) {
	pod := func(created int64, ends bool) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(created, 0)}}
		if ends {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(5, 0)}
		}
		return p
	}
	for _, tc := range []struct {
		name string
		a, b *v1.Pod
		want bool
	}{
		{"later", pod(2, false), pod(1, false), true},
		{"earlier", pod(1, false), pod(2, false), false},
		{"same", pod(1, false), pod(1, false), false},
		{"stays, earlier", pod(1, false), pod(2, true), true},
		{"ends, later", pod(2, true), pod(1, false), false},
		{"both end, later", pod(2, true), pod(1, true), true},
	} {
		if got := Newer(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestHashUID(t *testing.T) {
	pod := func(edit func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}}
		p.Namespace, p.Name = "ns", "a"
		edit(p)
		return p
	}
	base := HashUID(pod(func(*v1.Pod) {}))
	if want := "30902aeaff765722dde3c0e2c6949960"; string(base) != want { // pods restart where it changes
		t.Errorf("UID %s, want %s", base, want)
	}
	if !IsHashUID(base) {
		t.Errorf("%s is no hash", base)
	}
	for name, tc := range map[string]struct {
		edit func(*v1.Pod)
		same bool
	}{
		"label":     {func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }, true},
		"UID":       {func(p *v1.Pod) { p.UID = "x" }, true},
		"status":    {func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, true},
		"name":      {func(p *v1.Pod) { p.Name = "b" }, false},
		"namespace": {func(p *v1.Pod) { p.Namespace = "b" }, false},
		"env":       {func(p *v1.Pod) { p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A"}} }, false},
	} {
		if got := HashUID(pod(tc.edit)) == base; got != tc.same {
			t.Errorf("%s: same UID %v, want %v", name, got, tc.same)
		}
	}
}
