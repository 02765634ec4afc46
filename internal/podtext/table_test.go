package podtext

import (
	"bytes"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// testPod is a running pod of the node edge with one container, c.
func testPod(namespace, name string) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{NodeName: "edge", Containers: []v1.Container{{Name: "c", Image: "img:1"}}}}
	p.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid-1"}
	p.Status = v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.3", ContainerStatuses: []v1.ContainerStatus{{
		Name: "c", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
	}}}
	return p
}

func waiting(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

func ended(code int32, reason string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
}

var runs = v1.ContainerState{Running: &v1.ContainerStateRunning{}}

func TestPodColumns(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }
	web, db, odd := testPod("default", "web-edge"), testPod("kube-system", "db"), testPod("x", "odd")
	web.CreationTimestamp = at(90 * time.Second)
	start := at(49 * time.Hour)
	db.Status.StartTime = &start
	db.Status.PodIP = ""
	db.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "c", State: waiting("CrashLoopBackOff"), RestartCount: 12}
	odd.Status, odd.Spec.NodeName = v1.PodStatus{}, ""
	list := []v1.Pod{*web, *db, *odd}
	for _, tc := range []struct {
		wide bool
		want string
	}{
		{false, `
NAME       READY   STATUS             RESTARTS   AGE
web-edge   1/1     Running            0          90s
db         0/1     CrashLoopBackOff   12         2d1h
odd        0/1     Pending            0          <unknown>
`},
		{true, `
NAME       READY   STATUS             RESTARTS   AGE         IP         NODE     NOMINATED NODE   READINESS GATES
web-edge   1/1     Running            0          90s         10.0.0.3   edge     <none>           <none>
db         0/1     CrashLoopBackOff   12         2d1h        <none>     edge     <none>           <none>
odd        0/1     Pending            0          <unknown>   <none>     <none>   <none>           <none>
`},
	} {
		var b bytes.Buffer
		rows := [][]string{Header(Pods, tc.wide)}
		for i := range list {
			rows = append(rows, Row(Pods, &list[i], tc.wide, now))
		}
		if err := (&Lines{W: &b}).Write(rows...); err != nil {
			t.Fatal(err)
		}
		if got, want := b.String(), strings.TrimPrefix(tc.want, "\n"); got != want {
			t.Errorf("wide %v:\n%s\nwant\n%s", tc.wide, got, want)
		}
	}
}

// Rows that are written later stand below those that were written before.
func TestLines(t *testing.T) {
	var b bytes.Buffer
	l := &Lines{W: &b}
	for _, rows := range [][][]string{{{"NAME", "STATE"}, {"web", "Running"}}, {{"a-long-name", "x"}}, {{"ü", "y"}}} {
		if err := l.Write(rows...); err != nil {
			t.Fatal(err)
		}
	}
	const want = "NAME   STATE\nweb    Running\na-long-name   x\nü             y\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestRestartsWithEvictions(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	event := func(reason, uid string, count int32, ago time.Duration) v1.Event {
		return v1.Event{Reason: reason, Count: count, LastTimestamp: metav1.NewTime(now.Add(-ago)), InvolvedObject: v1.ObjectReference{Kind: "Pod", UID: types.UID(uid)}}
	}
	evicted := EvictionsOf([]v1.Event{
		event("Evicted", "a", 4, time.Hour), event("Evicted", "a", 0, 12*time.Second), event("Killing", "b", 9, time.Second), event("Evicted", "c", 1, time.Hour),
	})
	columns := PodsWith(func(uid types.UID) Extra { return Extra{Evictions: evicted[uid]} })
	pod := func(uid string, restarts int32) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", State: runs, RestartCount: restarts}}
		if restarts > 0 {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-time.Minute))}
		}
		return p
	}
	for _, tc := range []struct {
		pod           *v1.Pod
		here, kubectl string
	}{
		{pod("a", 0), "5 (evicted 12s ago)", "0"},
		{pod("a", 2), "7 (evicted 12s ago)", "2 (60s ago)"},
		{pod("b", 2), "2 (60s ago)", "2 (60s ago)"},
		{pod("c", 2), "3 (60s ago)", "2 (60s ago)"},
		{pod("d", 0), "0", "0"},
	} {
		for columns, want := range map[*[]Column]string{&columns: tc.here, &Pods: tc.kubectl} {
			if got := Row(*columns, tc.pod, false, now)[3]; got != want {
				t.Errorf("pod %s: %q, want %q", tc.pod.Name, got, want)
			}
		}
	}
}

func TestStatusOfAPull(t *testing.T) {
	columns := PodsWith(func(types.UID) Extra { return Extra{Pull: "12 of 40 MiB"} })
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	p.Status = v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: waiting("ContainerCreating")}}}
	for _, tc := range []struct {
		change func()
		want   string
	}{
		{func() {}, "Pulling (12 of 40 MiB)"},
		{func() { p.Status.Phase = v1.PodRunning }, "ContainerCreating"}, // an ephemeral container waits
		{func() { p.Status.Phase, p.DeletionTimestamp = v1.PodPending, &metav1.Time{} }, "Terminating"},
	} {
		tc.change()
		if got := Row(columns, p, false, time.Time{})[2]; got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
	p.DeletionTimestamp = nil
	if got := Row(Pods, p, false, time.Time{})[2]; got != "ContainerCreating" {
		t.Errorf("kubectl sees %q", got)
	}
}

func TestAgeOfAPodOfAManifest(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ago time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-ago)} }
	for _, tc := range []struct {
		name           string
		created, start *metav1.Time
		seen, want     string
	}{
		{"nothing is known", nil, nil, "", "<unknown>"},
		{"created", at(time.Hour), at(time.Minute), "2030-01-01T00:00:00Z", "60m"},
		{"started again after an eviction", nil, at(9 * time.Second), "2030-01-02T02:04:05.5Z", "59m"},
		{"seen again after a restart of the agent", nil, at(3 * time.Hour), "2030-01-02T03:04:00Z", "3h"},
		{"not started", nil, nil, "2030-01-02T03:04:00Z", "5s"},
		{"no time", nil, at(9 * time.Second), "yesterday", "9s"},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.seen": tc.seen}}}
		if p.Status.StartTime = tc.start; tc.created != nil {
			p.CreationTimestamp = *tc.created
		}
		if got := Age(p, now); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestEventColumns(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	e := &v1.Event{Type: "Warning", Reason: "NodeNotReady", Count: 2, Message: "x\ny", LastTimestamp: metav1.NewTime(now.Add(-time.Hour)), InvolvedObject: v1.ObjectReference{Kind: "Node", Name: "edge"}}
	if got, want := strings.Join(Row(Events, e, false, now), "|"), "60m|Warning|NodeNotReady|node/edge|x y"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestState(t *testing.T) {
	always, never, yes := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever, true
	spec := v1.PodSpec{
		InitContainers: []v1.Container{{Name: "i"}, {Name: "side", RestartPolicy: &always}},
		Containers:     []v1.Container{{Name: "a"}, {Name: "b"}},
	}
	type all = []v1.ContainerStatus
	st := func(name string, s v1.ContainerState) v1.ContainerStatus {
		return v1.ContainerStatus{Name: name, State: s}
	}
	sideUp := v1.ContainerStatus{Name: "side", State: runs, Started: &yes, Ready: true}
	for _, tc := range []struct {
		name       string
		phase      v1.PodPhase
		reason     string
		init, main all
		want       string
	}{
		{"nothing yet", "", "", nil, nil, "Pending"},
		{"rejected", v1.PodFailed, "OutOfcpu", nil, nil, "OutOfcpu"},
		{"first init runs", v1.PodPending, "", all{st("i", runs), st("side", waiting("PodInitializing"))}, nil, "Init:0/2"},
		{"sidecar starts", v1.PodPending, "", all{st("i", ended(0, "Completed")), st("side", runs)}, nil, "Init:1/2"},
		{"init failed", v1.PodPending, "", all{st("i", ended(1, "Error"))}, nil, "Init:Error"},
		{"init failed without a reason", v1.PodPending, "", all{st("i", ended(3, ""))}, nil, "Init:ExitCode:3"},
		{"init held up", v1.PodPending, "", all{st("i", waiting("ImagePullBackOff"))}, nil, "Init:ImagePullBackOff"},
		{"statuses in another order", v1.PodRunning, "", all{sideUp, st("i", ended(0, ""))}, all{st("a", runs)}, "Running"},
		{"creating", v1.PodPending, "", all{st("i", ended(0, "")), sideUp}, all{st("a", waiting("ContainerCreating"))}, "ContainerCreating"},
		{"second held up", v1.PodRunning, "", nil, all{st("a", runs), st("b", waiting("CrashLoopBackOff"))}, "CrashLoopBackOff"},
		{"one done, one runs", v1.PodRunning, "", nil, all{st("a", ended(0, "Completed")), st("b", runs)}, "Completed"},
		{"one failed, one runs", v1.PodRunning, "", nil, all{st("a", ended(1, "Error")), st("b", runs)}, "Error"},
		{"one failed, one done", v1.PodFailed, "", nil, all{st("a", ended(137, "OOMKilled")), st("b", ended(0, "Completed"))}, "OOMKilled"},
		{"all done", v1.PodSucceeded, "", nil, all{st("a", ended(0, "Completed")), st("b", ended(0, "Completed"))}, "Completed"},
		{"evicted", v1.PodFailed, "Evicted", nil, all{st("a", ended(137, "Error"))}, "Evicted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{Spec: spec}
			p.Status = v1.PodStatus{Phase: tc.phase, Reason: tc.reason, InitContainerStatuses: tc.init, ContainerStatuses: tc.main}
			if got := State(p); got != tc.want {
				t.Errorf("state %q, want %q", got, tc.want)
			}
			p.DeletionTimestamp = &metav1.Time{}
			want := "Terminating"
			if tc.phase == v1.PodFailed || tc.phase == v1.PodSucceeded {
				want = tc.want
			}
			if got := State(p); got != want {
				t.Errorf("with a deletion timestamp: %q", got)
			}
		})
	}
	// An init container with a restart policy of its own is no sidecar.
	p := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "i", RestartPolicy: &never}}, Containers: []v1.Container{{Name: "c"}}}}
	p.Status.InitContainerStatuses = all{{Name: "i", State: runs, Started: &yes, Ready: true, RestartCount: 2}}
	if got := State(p); got != "Init:0/1" {
		t.Errorf("state %q, want Init:0/1", got)
	}
	if ready, total, restarts := Counts(p); ready != 0 || total != 1 || restarts != 2 {
		t.Errorf("counts %d/%d, %d restarts; want 0/1, 2", ready, total, restarts)
	}
	p.Spec.InitContainers[0].RestartPolicy = &always
	if ready, total, _ := Counts(p); ready != 1 || total != 2 {
		t.Errorf("with a sidecar %d/%d ready, want 1/2", ready, total)
	}
}
