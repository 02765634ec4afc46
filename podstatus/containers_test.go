package podstatus

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
)

// brief says what matters of a container's status, in one line.
func brief(s v1.ContainerStatus) string {
	state := func(s v1.ContainerState) string {
		switch {
		case s.Running != nil:
			return "running"
		case s.Terminated != nil:
			return fmt.Sprintf("terminated %d %s", s.Terminated.ExitCode, s.Terminated.Reason)
		case s.Waiting != nil:
			return strings.TrimSpace("waiting " + s.Waiting.Reason)
		default:
			return "none"
		}
	}
	return fmt.Sprintf("%s, last %s, restarts %d", state(s.State), state(s.LastTerminationState), s.RestartCount)
}

// was is a previous status of container c, instance id.
func was(s v1.ContainerStatus, id string, restarts int32) *v1.PodStatus {
	s.ContainerID, s.RestartCount = "containerd://"+id, restarts
	return &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{s}}
}

// instance is one instance of container c.
func instance(id string, state observed.State, code, restarts int32) observed.Container {
	return observed.Container{
		ID: id, Name: "c", State: state, ExitCode: &code, RestartCount: restarts, SandboxID: "s",
		CreatedAt: now, StartedAt: now, FinishedAt: now,
	}
}

func TestStatusFromRuntimeAndPrevious(t *testing.T) {
	type list = []observed.Container
	crash := map[string]podlife.Cause{"c": {Reason: "CrashLoopBackOff", Message: "wait"}}
	onFailureOnly := v1.ContainerRestartPolicyOnFailure
	for _, tc := range []struct {
		name     string
		policy   v1.RestartPolicy // Always
		own      *v1.ContainerRestartPolicy
		obs      list
		previous *v1.PodStatus
		deleted  bool
		terminal bool
		errs     map[string]podlife.Cause
		want     string
	}{
		{name: "never seen", want: "waiting ContainerCreating, last none, restarts 0"},
		{name: "created", obs: list{instance("1", observed.Created, 0, 0)}, want: "waiting, last none, restarts 0"},
		{name: "running", obs: list{instance("1", observed.Running, 0, 0)}, want: "running, last none, restarts 0"},
		{name: "ended well", obs: list{instance("1", observed.Exited, 0, 0)}, want: "terminated 0 Completed, last none, restarts 0"},
		{name: "ended badly", obs: list{instance("1", observed.Exited, 3, 0)}, want: "terminated 3 Error, last none, restarts 0"},
		{name: "never known", obs: list{instance("1", observed.Unknown, 0, 0)}, want: "waiting, last none, restarts 0"},

		// Several instances.
		{name: "the second newest is the last", obs: list{instance("3", observed.Running, 0, 2), instance("2", observed.Exited, 7, 1), instance("1", observed.Exited, 9, 0)},
			want: "running, last terminated 7 Error, restarts 2"},
		{name: "a second that has not ended is no proof", obs: list{instance("2", observed.Running, 0, 1), instance("1", observed.Running, 0, 0)},
			want: "running, last none, restarts 1"},
		{name: "crashed, restarted, crashed", obs: list{instance("2", observed.Exited, 2, 1), instance("1", observed.Exited, 1, 0)},
			want: "terminated 2 Error, last terminated 1 Error, restarts 1"},

		// Gone from the runtime.
		{name: "gone while it ran", previous: was(running("c"), "1", 0), want: "waiting ContainerCreating, last terminated 137 ContainerStatusUnknown, restarts 1"},
		{name: "gone while it ran, deleting", previous: was(running("c"), "1", 2), deleted: true,
			want: "waiting ContainerCreating, last terminated 137 ContainerStatusUnknown, restarts 2"},
		{name: "gone after its end", previous: was(exited("c", 4), "1", 2), want: "terminated 4 , last none, restarts 2"},
		{name: "gone after its end, deleting", previous: was(exited("c", 4), "1", 2), deleted: true, want: "terminated 4 , last none, restarts 2"},
		{name: "gone while it waited", previous: was(waitingAfter("c", 4), "1", 2), want: "waiting ContainerCreating, last terminated 4 , restarts 2"},
		{name: "gone for the second time told", previous: was(waitingAfter("c", 137), "1", 1), want: "waiting ContainerCreating, last terminated 137 , restarts 1"},

		// A state that the runtime cannot tell.
		{name: "unknown while it ran", obs: list{instance("1", observed.Unknown, 0, 0)}, previous: was(running("c"), "1", 3),
			want: "terminated 137 ContainerStatusUnknown, last none, restarts 4"},
		{name: "unknown after its end", obs: list{instance("1", observed.Unknown, 0, 0)}, previous: was(exited("c", 6), "1", 4),
			want: "terminated 6 , last none, restarts 4"},
		{name: "unknown, and another before it had ended", obs: list{instance("2", observed.Unknown, 0, 1)}, previous: was(exited("c", 6), "1", 0),
			want: "waiting, last terminated 6 , restarts 1"},

		// Restart counts and the last termination.
		{name: "the runtime counts less", obs: list{instance("9", observed.Running, 0, 0)}, previous: was(exited("c", 1), "1", 5),
			want: "running, last terminated 1 , restarts 6"},
		{name: "the runtime counts more", obs: list{instance("9", observed.Running, 0, 8)}, previous: was(exited("c", 1), "1", 5),
			want: "running, last terminated 1 , restarts 8"},
		{name: "the same instance is no restart", obs: list{instance("1", observed.Running, 0, 0)}, previous: was(running("c"), "1", 5),
			want: "running, last none, restarts 5"},
		{name: "the previous end replaces an earlier one", obs: list{instance("9", observed.Running, 0, 2)},
			previous: func() *v1.PodStatus {
				s := exited("c", 2)
				s.LastTerminationState = exited("c", 1).State
				return was(s, "1", 1)
			}(),
			want: "running, last terminated 2 , restarts 2"},
		{name: "the last end stays while it runs", obs: list{instance("1", observed.Running, 0, 1)},
			previous: func() *v1.PodStatus {
				s := running("c")
				s.LastTerminationState = exited("c", 1).State
				return was(s, "1", 1)
			}(),
			want: "running, last terminated 1 , restarts 1"},
		{name: "from waiting to running", obs: list{instance("2", observed.Running, 0, 1)}, previous: was(waitingAfter("c", 1), "1", 0),
			want: "running, last terminated 1 , restarts 1"},

		// Start errors.
		{name: "image is missing", errs: map[string]podlife.Cause{"c": {Reason: "ErrImagePull", Message: "no"}}, want: "waiting ErrImagePull, last none, restarts 0"},
		{name: "crash loop", obs: list{instance("1", observed.Exited, 3, 0)}, errs: crash, want: "waiting CrashLoopBackOff, last terminated 3 Error, restarts 0"},
		{name: "crash loop of one that ends well", obs: list{instance("1", observed.Exited, 0, 0)}, errs: crash,
			want: "waiting CrashLoopBackOff, last terminated 0 Completed, restarts 0"},
		{name: "crash loop: the older end gives way", obs: list{instance("2", observed.Exited, 2, 1), instance("1", observed.Exited, 1, 0)}, errs: crash,
			want: "waiting CrashLoopBackOff, last terminated 2 Error, restarts 1"},
		{name: "crash loop goes on", obs: list{instance("1", observed.Exited, 3, 0)}, previous: was(waitingAfter("c", 3), "1", 0), errs: crash,
			want: "waiting CrashLoopBackOff, last terminated 3 Error, restarts 0"},
		{name: "it runs all the same", obs: list{instance("1", observed.Running, 0, 0)}, errs: crash, want: "running, last none, restarts 0"},
		{name: "never restarted", policy: never, obs: list{instance("1", observed.Exited, 3, 0)}, errs: crash, want: "terminated 3 Error, last none, restarts 0"},
		{name: "content on failure", policy: onFailure, obs: list{instance("1", observed.Exited, 0, 0)}, errs: crash, want: "terminated 0 Completed, last none, restarts 0"},
		{name: "not content on failure", policy: onFailure, obs: list{instance("1", observed.Exited, 1, 0)}, errs: crash, want: "waiting CrashLoopBackOff, last terminated 1 Error, restarts 0"},
		{name: "by its own policy", policy: never, own: &onFailureOnly, obs: list{instance("1", observed.Exited, 1, 0)}, errs: crash,
			want: "waiting CrashLoopBackOff, last terminated 1 Error, restarts 0"},
		{name: "not while deleting", deleted: true, obs: list{instance("1", observed.Exited, 3, 0)}, errs: crash, want: "terminated 3 Error, last none, restarts 0"},
		{name: "not once all is over", terminal: true, obs: list{instance("1", observed.Exited, 3, 0)}, errs: crash, want: "terminated 3 Error, last none, restarts 0"},

		{name: "others' names say nothing", obs: list{{ID: "x", Name: "stranger", State: observed.Running}}, want: "waiting ContainerCreating, last none, restarts 0"},
		{name: "abandoned before it ran", obs: list{{ID: "1", Name: "c", State: observed.Exited, ExitCode: new(int32(128)), Abandoned: true}}, want: "waiting, last none, restarts 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(tc.policy, nil, "c")
			p.Spec.Containers[0].RestartPolicy = tc.own
			if tc.policy == "" {
				p.Spec.RestartPolicy = always
			}
			if tc.deleted {
				p.DeletionTimestamp = &metav1.Time{Time: now}
			}
			in := Input{Pod: p, Observed: &observed.Pod{UID: "u", Containers: tc.obs}, Previous: tc.previous,
				StartErrors: tc.errs, Terminal: tc.terminal, Now: now}
			got := ContainerStatuses(in, RegularContainers)
			if len(got) != 1 {
				t.Fatalf("%d statuses", len(got))
			}
			if b := brief(got[0]); b != tc.want {
				t.Errorf("got  %s\nwant %s", b, tc.want)
			}
		})
	}
}

func TestInitContainerStatuses(t *testing.T) {
	type list = []observed.Container
	at := func(name string, state observed.State, code int32) observed.Container {
		return observe(state, name, code, 0, 1)
	}
	errs := map[string]podlife.Cause{"i": {Reason: "CrashLoopBackOff"}, "s": {Reason: "CrashLoopBackOff"}}
	const waits = "waiting PodInitializing, last none, restarts 0"
	for _, tc := range []struct {
		name string
		obs  list
		errs map[string]podlife.Cause
		i, s string // the init container, the sidecar after it
	}{
		{name: "nothing yet", i: waits, s: waits},
		{name: "init runs", obs: list{at("i", observed.Running, 0)}, i: "running, last none, restarts 0", s: waits},
		{name: "init failed", obs: list{at("i", observed.Exited, 1)}, errs: errs,
			i: "waiting CrashLoopBackOff, last terminated 1 Error, restarts 0", s: "waiting CrashLoopBackOff, last none, restarts 0"},
		{name: "a succeeded init is left alone", obs: list{at("i", observed.Exited, 0)}, errs: errs,
			i: "terminated 0 Completed, last none, restarts 0", s: "waiting CrashLoopBackOff, last none, restarts 0"},
		{name: "a sidecar that ended well is not", obs: list{at("i", observed.Exited, 0), at("s", observed.Exited, 0)}, errs: errs,
			i: "terminated 0 Completed, last none, restarts 0", s: "waiting CrashLoopBackOff, last terminated 0 Completed, restarts 0"},
		{name: "lost after a regular one was started", obs: list{at("c", observed.Running, 0)},
			i: "terminated 0 Completed, last none, restarts 0", s: waits},
		{name: "lost, and a stale error", obs: list{at("c", observed.Exited, 1)}, errs: errs,
			i: "terminated 0 Completed, last none, restarts 0", s: "waiting CrashLoopBackOff, last none, restarts 0"},
		{name: "its own end goes first", obs: list{at("c", observed.Running, 0), at("i", observed.Exited, 4)},
			i: "terminated 4 Error, last none, restarts 0", s: waits},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(always, []v1.Container{{Name: "i", Image: "i"}, sidecar("s")}, "c")
			in := Input{Pod: p, Observed: &observed.Pod{Containers: tc.obs}, StartErrors: tc.errs, Now: now}
			got := ContainerStatuses(in, InitContainers)
			if len(got) != 2 || got[0].Name != "i" || got[1].Name != "s" {
				t.Fatalf("statuses %+v, want those of i and s", got)
			}
			if b := brief(got[0]); b != tc.i {
				t.Errorf("init: got  %s\n      want %s", b, tc.i)
			}
			if b := brief(got[1]); b != tc.s {
				t.Errorf("sidecar: got  %s\n         want %s", b, tc.s)
			}
			if b := ContainerStatuses(in, RegularContainers)[0]; len(tc.obs) == 0 && brief(b) != waits {
				t.Errorf("regular: %s, want %s", brief(b), waits)
			}
		})
	}
}

func TestEphemeralContainerStatuses(t *testing.T) {
	p := podOf(always, nil, "c")
	for _, name := range []string{"z", "a"} {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers,
			v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name, Image: "i"}})
	}
	in := Input{Pod: p, Now: now, StartErrors: map[string]podlife.Cause{"a": {Reason: "ErrImagePull"}, "z": {Reason: "ErrImagePull"}},
		Observed: &observed.Pod{Containers: []observed.Container{observe(observed.Exited, "z", 1, 0, 1)}}}
	got := ContainerStatuses(in, EphemeralContainers)
	if len(got) != 2 || got[0].Name != "a" || got[1].Name != "z" {
		t.Fatalf("statuses %+v, want those of a and z", got)
	}
	if b := brief(got[0]); b != "waiting ErrImagePull, last none, restarts 0" {
		t.Errorf("one that cannot start: %s", b)
	}
	if b := brief(got[1]); b != "terminated 1 Error, last none, restarts 0" {
		t.Errorf("one that ended is not started again: %s", b)
	}
}

func TestReadyAndStarted(t *testing.T) {
	yes, no := func(string) bool { return true }, func(string) bool { return false }
	probe := &v1.Probe{}
	for _, tc := range []struct {
		name               string
		readiness, startup *v1.Probe
		isReady, isStarted func(string) bool
		state              observed.State
		ready, started     bool
	}{
		{name: "no probes", state: observed.Running, ready: true, started: true},
		{name: "no probes, ended", state: observed.Exited},
		{name: "no probes, created", state: observed.Created},
		{name: "not ready", readiness: probe, isReady: no, state: observed.Running, started: true},
		{name: "ready", readiness: probe, isReady: yes, state: observed.Running, ready: true, started: true},
		{name: "nobody probes", readiness: probe, state: observed.Running, started: true},
		{name: "starting up", startup: probe, isStarted: no, state: observed.Running},
		{name: "started up", startup: probe, isStarted: yes, state: observed.Running, ready: true, started: true},
		{name: "ready before it has started up", startup: probe, isStarted: no, readiness: probe, isReady: yes, state: observed.Running},
		{name: "ready and ended", readiness: probe, isReady: yes, startup: probe, isStarted: yes, state: observed.Exited},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(always, []v1.Container{sidecar("s")}, "c")
			for _, c := range []*v1.Container{&p.Spec.InitContainers[0], &p.Spec.Containers[0]} {
				c.ReadinessProbe, c.StartupProbe = tc.readiness, tc.startup
			}
			in := Input{Pod: p, Ready: tc.isReady, Started: tc.isStarted, Now: now, Observed: &observed.Pod{
				Containers: []observed.Container{observe(tc.state, "s", 0, 0, 1), observe(tc.state, "c", 0, 0, 1)},
			}}
			for _, s := range []v1.ContainerStatus{ContainerStatuses(in, InitContainers)[0], ContainerStatuses(in, RegularContainers)[0]} {
				if s.Ready != tc.ready || s.Started == nil || *s.Started != tc.started {
					t.Errorf("%s: ready %v, started %v", s.Name, s.Ready, s.Started)
				}
			}
		})
	}
	asked := ""
	p := podOf(always, nil, "c")
	p.Spec.Containers[0].ReadinessProbe = probe
	ContainerStatuses(Input{Pod: p, Ready: func(id string) bool { asked = id; return true },
		Observed: &observed.Pod{Containers: []observed.Container{{ID: "bare", Name: "c", State: observed.Running}}}}, RegularContainers)
	if asked != "bare" {
		t.Errorf("probes were asked for %q, want the runtime's own ID", asked)
	}
}

func TestImagesIDsTimesAndUser(t *testing.T) {
	started, finished := now.Add(-time.Minute), now.Add(-time.Second)
	p := podOf(always, nil, "c")
	o := observed.Container{
		ID: "1", Name: "c", State: observed.Exited, Image: "resolved", ImageRef: "img@sha256:1", ImageID: "sha256:2",
		StartedAt: started, FinishedAt: finished, ExitCode: new(int32(9)), Reason: "OOMKilled", Message: "bye",
		User: &observed.User{UID: 1, GID: 2, SupplementalGroups: []int64{3}},
	}
	status := func() v1.ContainerStatus {
		return ContainerStatuses(Input{Pod: p, Observed: &observed.Pod{Containers: []observed.Container{o}}}, RegularContainers)[0]
	}
	s := status()
	want := v1.ContainerStateTerminated{
		ExitCode: 9, Reason: "OOMKilled", Message: "bye", ContainerID: "containerd://1",
		StartedAt: metav1.NewTime(started), FinishedAt: metav1.NewTime(finished),
	}
	if s.State.Terminated == nil || *s.State.Terminated != want {
		t.Errorf("terminated %+v, want %+v", s.State.Terminated, want)
	}
	if s.ContainerID != "containerd://1" || s.Image != "resolved" || s.ImageID != "img@sha256:1" {
		t.Errorf("container %s of image %s, %s", s.ContainerID, s.Image, s.ImageID)
	}
	if u := s.User; u == nil || !reflect.DeepEqual(*u.Linux, v1.LinuxContainerUser{UID: 1, GID: 2, SupplementalGroups: []int64{3}}) {
		t.Errorf("user %+v", u)
	}
	o.ID, o.Image, o.ImageRef, o.User = "cri-o://1", "", "", nil
	if s := status(); s.ContainerID != "cri-o://1" || s.Image != "i" || s.ImageID != "sha256:2" || s.User != nil {
		t.Errorf("container %s of image %s, %s, user %v", s.ContainerID, s.Image, s.ImageID, s.User)
	}
}

func TestResources(t *testing.T) {
	amounts := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		if cpu != "" {
			l[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[v1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	for _, tc := range []struct {
		name             string
		requests, limits v1.ResourceList
		shown            *observed.Resources
		exited           bool
		before           *v1.ResourceRequirements
		cpu, limit, mem  string // request, limit and memory limit in the status
	}{
		{name: "as asked", requests: amounts("500m", "1Gi"), limits: amounts("1", "1Gi"),
			shown: &observed.Resources{CPUPeriod: 100000, CPUQuota: 100000, CPUShares: 512, MemoryLimit: 1 << 30}, cpu: "500m", limit: "1", mem: "1Gi"},
		{name: "not resized yet", requests: amounts("500m", ""), limits: amounts("1", "1Gi"),
			shown: &observed.Resources{CPUPeriod: 100000, CPUQuota: 50000, CPUShares: 256, MemoryLimit: 1 << 29}, cpu: "250m", limit: "500m", mem: "512Mi"},
		{name: "odd shares stand for what was asked", requests: amounts("333m", ""), shown: &observed.Resources{CPUShares: 340}, cpu: "333m", limit: "0", mem: "0"},
		{name: "less than a cgroup can show", requests: amounts("1m", ""), limits: amounts("5m", ""),
			shown: &observed.Resources{CPUPeriod: 100000, CPUQuota: 1000, CPUShares: 2}, cpu: "1m", limit: "5m", mem: "0"},
		{name: "not running", exited: true, requests: amounts("500m", ""), limits: amounts("1", "1Gi"),
			shown: &observed.Resources{CPUPeriod: 100000, CPUQuota: 50000, CPUShares: 256, MemoryLimit: 1 << 29}, cpu: "500m", limit: "1", mem: "1Gi"},
		{name: "silent runtime", requests: amounts("500m", ""), limits: amounts("1", "1Gi"), cpu: "500m", limit: "1", mem: "1Gi"},
		{name: "silent runtime, known from before", requests: amounts("500m", ""), limits: amounts("1", "1Gi"),
			before: &v1.ResourceRequirements{Requests: amounts("250m", ""), Limits: amounts("750m", "2Gi")}, cpu: "250m", limit: "750m", mem: "2Gi"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(always, nil, "c")
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: tc.requests, Limits: tc.limits}
			o := instance("1", observed.Running, 0, 0)
			if tc.exited {
				o.State = observed.Exited
			}
			o.Resources = tc.shown
			in := Input{Pod: p, Observed: &observed.Pod{Containers: []observed.Container{o}}}
			if tc.before != nil {
				in.Previous = was(running("c"), "1", 0)
				in.Previous.ContainerStatuses[0].Resources = tc.before
			}
			s := ContainerStatuses(in, RegularContainers)[0]
			for _, q := range []struct {
				what string
				got  *resource.Quantity
				want string
			}{
				{"CPU request", s.Resources.Requests.Cpu(), tc.cpu},
				{"CPU limit", s.Resources.Limits.Cpu(), tc.limit},
				{"memory limit", s.Resources.Limits.Memory(), tc.mem},
			} {
				if q.got.Cmp(resource.MustParse(q.want)) != 0 {
					t.Errorf("%s %s, want %s", q.what, q.got, q.want)
				}
			}
			if !reflect.DeepEqual(s.AllocatedResources, tc.requests) {
				t.Errorf("allocated %v, want %v", s.AllocatedResources, tc.requests)
			}
		})
	}
}

// What the runtime reports one instance is not said of the next; what others
// say of a container's devices stays.
func TestCarriedOver(t *testing.T) {
	p := podOf(always, nil, "c")
	signal := v1.Signal("SIGRTMIN+3")
	health := []v1.ResourceStatus{{Name: "example.com/gpu", Resources: []v1.ResourceHealth{{ResourceID: "0", Health: v1.ResourceHealthStatusHealthy}}}}
	o := instance("1", observed.Running, 0, 0)
	o.StopSignal, o.User = string(signal), &observed.User{UID: 1}
	status := func(prev *v1.PodStatus, list ...observed.Container) v1.ContainerStatus {
		return ContainerStatuses(Input{Pod: p, Previous: prev, Observed: &observed.Pod{Containers: list}}, RegularContainers)[0]
	}
	s := status(nil, o)
	if s.StopSignal == nil || *s.StopSignal != signal || s.User == nil || s.AllocatedResourcesStatus != nil {
		t.Errorf("signal %v, user %v, health %v", s.StopSignal, s.User, s.AllocatedResourcesStatus)
	}
	s.AllocatedResourcesStatus = health
	for _, next := range []observed.Container{instance("1", observed.Running, 0, 0), instance("1", observed.Exited, 0, 0), instance("2", observed.Running, 0, 1)} {
		prev := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{s}}
		s = status(prev, next)
		if s.StopSignal != nil || s.User != nil {
			t.Errorf("%s: signal %v, user %v, that the runtime does not report", next.ID, s.StopSignal, s.User)
		}
		if !reflect.DeepEqual(s.AllocatedResourcesStatus, health) {
			t.Errorf("%s: health %v, want %v", next.ID, s.AllocatedResourcesStatus, health)
		}
		prev.ContainerStatuses[0].AllocatedResourcesStatus[0].Resources[0].Health = v1.ResourceHealthStatusUnhealthy
		if s.AllocatedResourcesStatus[0].Resources[0].Health != v1.ResourceHealthStatusHealthy {
			t.Fatal("the health is shared with what was handed in")
		}
		health = slices.Clone(s.AllocatedResourcesStatus)
	}
	if s := status(&v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{s}}); !reflect.DeepEqual(s.AllocatedResourcesStatus, health) {
		t.Errorf("of one that is gone: health %v, want %v", s.AllocatedResourcesStatus, health)
	}
}

// Claims are others' to write, whatever was computed before.
func TestClaimsAreThePods(t *testing.T) {
	p := podOf(always, nil, "c")
	p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "new"}}
	p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "claim"}
	p.Status.NodeAllocatableResourceClaimStatuses = []v1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "node"}}
	st := Of(Input{Pod: p, Previous: &v1.PodStatus{ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "old"}}}, Now: now})
	if !reflect.DeepEqual(st.ResourceClaimStatuses, p.Status.ResourceClaimStatuses) ||
		!reflect.DeepEqual(st.ExtendedResourceClaimStatus, p.Status.ExtendedResourceClaimStatus) ||
		!reflect.DeepEqual(st.NodeAllocatableResourceClaimStatuses, p.Status.NodeAllocatableResourceClaimStatuses) {
		t.Errorf("claims %v, %v, %v; want the pod's", st.ResourceClaimStatuses, st.ExtendedResourceClaimStatus, st.NodeAllocatableResourceClaimStatuses)
	}
}

// IDs begin with what the runtime calls itself, unless the runtime sees to
// that itself.
func TestContainerIDs(t *testing.T) {
	for _, tc := range []struct{ runtime, id, want string }{
		{"", "1", "containerd://1"}, {"cri-o", "1", "cri-o://1"}, {"cri-o", "own://1", "own://1"},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
		st := Of(Input{Pod: pod, Runtime: tc.runtime, Observed: &observed.Pod{
			Containers: []observed.Container{{ID: tc.id, Name: "c", State: observed.Running}},
		}})
		got := st.ContainerStatuses[0].ContainerID
		if got != tc.want || BareID(got) != "1" {
			t.Errorf("runtime %q: ID %q is %q and %q, want %q and 1", tc.runtime, tc.id, got, BareID(got), tc.want)
		}
	}
}
