package podruntime

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podspec"
)

// Dashboards made for the kubelet know these names and buckets.
func TestMetricNames(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := newMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	m.startedContainer("container", 1, as(podlife.CreateFailed, errors.New("x")))
	m.sandbox.WithLabelValues("").Observe(1)
	m.sandboxErrors.WithLabelValues("").Inc()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, f := range families {
		have[f.GetName()] = true
		if f.GetName() == "kubelet_run_podsandbox_duration_seconds" {
			b := f.GetMetric()[0].GetHistogram().GetBucket()
			if len(b) != 14 || b[0].GetUpperBound() != 0.005 || b[1].GetUpperBound() != 0.0125 {
				t.Errorf("buckets %v", b)
			}
		}
	}
	for _, name := range []string{
		"kubelet_started_pods_total", "kubelet_started_pods_errors_total",
		"kubelet_started_user_namespaced_pods_total", "kubelet_started_user_namespaced_pods_errors_total",
		"kubelet_started_containers_total", "kubelet_started_containers_errors_total",
		"kubelet_run_podsandbox_duration_seconds", "kubelet_run_podsandbox_errors_total",
		"kubelet_image_volume_requested_total", "kubelet_image_volume_mounted_succeed_total", "kubelet_image_volume_mounted_errors_total",
		"kubelet_lifecycle_handler_http_fallbacks_total", "kubelet_sleep_action_terminated_early_total",
	} {
		if !have[name] {
			t.Errorf("%s is not exported", name)
		}
	}
	if _, err := newMetrics(reg); err != nil {
		t.Errorf("a second one on the same registry: %v", err)
	}
}

// count is the sum of a collector's counters.
func count(t *testing.T, c prometheus.Collector) (sum float64) {
	t.Helper()
	reg := prometheus.NewRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	for _, v := range counted(t, reg) {
		sum += v
	}
	return sum
}

// counted reports the value of each counter that is not 0.
func counted(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "kubelet_")
			for _, l := range s.GetLabel() {
				if l.GetValue() != "" {
					name += " " + l.GetValue()
				}
			}
			if v := s.GetCounter().GetValue(); v != 0 {
				out[name] = v
			}
		}
	}
	return out
}

// Errors are a part of the starts, and what waits is neither.
func TestStartsAreCounted(t *testing.T) {
	for _, tc := range []struct {
		name string
		fail string // a call of the runtime
		want string
	}{
		{"all well", "", "image_volume_mounted_succeed_total=2 image_volume_requested_total=2 started_containers_total container=2 " +
			"started_pods_total=1 started_user_namespaced_pods_total=1"},
		{"no sandbox", "RunPodSandbox", "run_podsandbox_errors_total=1 started_pods_errors_total=1 started_pods_total=1 " +
			"started_user_namespaced_pods_errors_total=1 started_user_namespaced_pods_total=1"},
		{"no container", "CreateContainer", "image_volume_mounted_errors_total=2 image_volume_requested_total=2 " +
			"started_containers_errors_total CreateContainerError container=2 started_containers_total container=2 " +
			"started_pods_total=1 started_user_namespaced_pods_total=1"},
		{"no start", "StartContainer", "image_volume_mounted_succeed_total=2 image_volume_requested_total=2 " +
			"started_containers_errors_total RunContainerError container=2 started_containers_total container=2 " +
			"started_pods_total=1 started_user_namespaced_pods_total=1"},
	} {
		reg := prometheus.NewRegistry()
		r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a", "b")
		w.pod.Spec.Volumes = []v1.Volume{
			{Name: "i", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "img"}}},
			{Name: "j", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "img"}}},
		}
		w.pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "i", MountPath: "/i"}, {Name: "j", MountPath: "/j"}, {Name: "i", MountPath: "/k"}}
		if tc.fail != "" {
			r.fail[tc.fail] = errors.New("no")
		}
		m, err := New(Config{Runtime: r, Images: present{}, PodLogsDir: t.TempDir(), Metrics: reg})
		if err != nil {
			t.Fatal(err)
		}
		req := request(t, w, r.look())
		req.Spec.UserNamespace = &podspec.IDRange{First: 1 << 16, Length: 1 << 16}
		for range 3 { // what fails is held back then
			req.Observed = r.look()
			m.Sync(t.Context(), req)
		}
		if got := join(counted(t, reg)); got != tc.want {
			t.Errorf("%s:\n%s, want\n%s", tc.name, got, tc.want)
		}
	}
}

// A container that waits in a crash loop is not a failed start each time that
// somebody looks.
func TestCrashLoopIsNoFailedStart(t *testing.T) {
	r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a")
	m := manager(t, r)
	for range 2 {
		mustSync(t, m, request(t, w, r.look()))
		_ = r.set(r.pod.Containers[0].ID, observed.Exited)
	}
	for range 3 {
		if res := m.Sync(t.Context(), request(t, w, r.look())); reasonOf(res.Err()) != string(podlife.CrashLoop) {
			t.Fatalf("sync: %v", res.Err())
		}
	}
	if n := count(t, m.met.containers.WithLabelValues("container")); n != 2 {
		t.Errorf("%v starts counted, want 2", n)
	}
	if n := count(t, m.met.containerErrors); n != 0 {
		t.Errorf("%v errors counted, want none", n)
	}
	if e := m.StartErrors(podlife.Life{UID: "u"})["a"]; e.Reason != string(podlife.CrashLoop) {
		t.Errorf("shown as %+v", e)
	}
}
