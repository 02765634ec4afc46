package critest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
)

// Subject is a runtime that [Conformance] tests.
type Subject struct {
	Runtime criapi.RuntimeService
	Images  criapi.ImageManagerService
	// Image is the name of an image that the runtime has and that understands the scripts of this
	// package.
	Image string
	// NoUserNamespaces says why no pod can have user IDs of its own on this machine. If it is not nil,
	// tests of such pods are skipped.
	NoUserNamespaces error
	// Offer provides an image that understands the scripts and can be pulled by the given name.
	// It returns the full name. Each call provides another image.
	Offer func(name string) string
}

// Conformance tests the behaviour of a runtime on which this library relies. The fake and the real
// runtimes pass the same tests.
func Conformance(t *testing.T, s Subject) {
	for _, tc := range []struct {
		name string
		test func(*testing.T, *fixture)
	}{
		{"life of a container", testLife},
		{"exit codes", testExitCodes},
		{"a start that fails", testStartFails},
		{"logs", testLogs},
		{"logs are reopened", testReopenLog},
		{"term and kill", testStop},
		{"resources change", testResources},
		{"list filters", testFilters},
		{"idempotence", testIdempotence},
		{"names are reserved", testReserved},
		{"sandbox takes its containers", testSandboxEnds},
		{"events", testEvents},
		{"images", testImages},
		{"an image whose name has another", testNameMoves},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, newFixture(t, s)) })
	}
}

// fixture is a test with its sandbox.
type fixture struct {
	Subject
	t       *testing.T
	conf    *runtimeapi.PodSandboxConfig
	sandbox string
}

func newFixture(t *testing.T, s Subject, change ...func(*runtimeapi.PodSandboxConfig)) *fixture {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", "#", "-").Replace(t.Name()))
	if len(name) > 60 {
		name = name[len(name)-60:]
	}
	r := &fixture{Subject: s, t: t, conf: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "conformance", Uid: "uid-" + name},
		Labels: map[string]string{
			cri.LabelPodName: name, cri.LabelPodNamespace: "conformance", cri.LabelPodUID: "uid-" + name,
		},
		Annotations:  map[string]string{"note": "kept"},
		LogDirectory: t.TempDir(),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}}},
	}}
	for _, f := range change {
		f(r.conf)
	}
	if s.NoUserNamespaces != nil && r.conf.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions() != nil {
		t.Skip("needs user namespaces: ", s.NoUserNamespaces)
	}
	id, err := s.Runtime.RunPodSandbox(r.ctx(), r.conf, "")
	if err != nil {
		t.Fatalf("RunPodSandbox: %v", err)
	}
	r.sandbox = id
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = s.Runtime.StopPodSandbox(ctx, id)
		if err := s.Runtime.RemovePodSandbox(ctx, id); err != nil {
			t.Errorf("RemovePodSandbox: %v", err)
		}
	})
	return r
}

func (r *fixture) ctx() context.Context { return r.t.Context() }

func (r *fixture) create(name string, args ...string) string {
	r.t.Helper()
	id, err := r.Runtime.CreateContainer(r.ctx(), r.sandbox, r.container(name, args...), r.conf)
	if err != nil {
		r.t.Fatalf("CreateContainer: %v", err)
	}
	return id
}

func (r *fixture) container(name string, args ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: r.Image},
		Args:     args,
		LogPath:  name + ".log",
		Labels: map[string]string{
			cri.LabelPodUID: r.conf.GetMetadata().GetUid(), cri.LabelContainerName: name,
		},
		Annotations: map[string]string{cri.AnnotationRestartCount: "0"},
		Linux:       &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{}, SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}}},
	}
}

func (r *fixture) start(id string) {
	r.t.Helper()
	if err := r.Runtime.StartContainer(r.ctx(), id); err != nil {
		r.t.Fatalf("StartContainer: %v", err)
	}
}

func (r *fixture) status(id string) *runtimeapi.ContainerStatus {
	r.t.Helper()
	resp, err := r.Runtime.ContainerStatus(r.ctx(), id, false)
	if err != nil {
		r.t.Fatalf("ContainerStatus: %v", err)
	}
	return resp.GetStatus()
}

// until calls ok until it returns true, for as long as a slow machine may need. condition names
// what was awaited, for the failure.
func (r *fixture) until(condition string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("never: %s", condition)
		}
	}
}

func (r *fixture) untilExited(id string) *runtimeapi.ContainerStatus {
	r.t.Helper()
	r.until("container exits", func() bool {
		return r.status(id).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return r.status(id)
}

func testLife(t *testing.T, r *fixture) {
	sb, err := r.Runtime.PodSandboxStatus(t.Context(), r.sandbox, false)
	if err != nil {
		t.Fatal(err)
	}
	if st := sb.GetStatus(); st.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || st.GetNetwork().GetIp() == "" ||
		st.GetMetadata().GetUid() != r.conf.GetMetadata().GetUid() || st.GetAnnotations()["note"] != "kept" {
		t.Errorf("sandbox status %v", st)
	}
	id := r.create("c", "sleep", "forever")
	if st := r.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED || st.GetStartedAt() != 0 || st.GetCreatedAt() == 0 {
		t.Errorf("created: %v", st)
	}
	r.start(id)
	if st := r.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || st.GetStartedAt() < st.GetCreatedAt() ||
		st.GetAnnotations()[cri.AnnotationRestartCount] != "0" || st.GetMetadata().GetName() != "c" || st.GetImageRef() == "" {
		t.Errorf("running: %v", st)
	}
	if err := r.Runtime.StopContainer(t.Context(), id, 10); err != nil {
		t.Fatal(err)
	}
	if st := r.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetFinishedAt() < st.GetStartedAt() {
		t.Errorf("stopped: %v", st)
	}
	if err := r.Runtime.RemoveContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Runtime.ContainerStatus(t.Context(), id, false); !cri.IsNotFound(err) {
		t.Errorf("status of a removed container: %v, want NotFound", err)
	}
}

func testExitCodes(t *testing.T, r *fixture) {
	for name, want := range map[string]int32{"zero": 0, "seven": 7} {
		id := r.create(name, "exit", map[int32]string{0: "0", 7: "7"}[want])
		r.start(id)
		st := r.untilExited(id)
		reason := "Completed"
		if want != 0 {
			reason = "Error"
		}
		if st.GetExitCode() != want || st.GetReason() != reason {
			t.Errorf("exit code %d reason %q, want %d %q", st.GetExitCode(), st.GetReason(), want, reason)
		}
	}
}

// testStartFails tests that a container that cannot be started has ended, with a reason.
func testStartFails(t *testing.T, r *fixture) {
	conf := r.container("a")
	conf.Command = []string{"/no/such/file"}
	id, err := r.Runtime.CreateContainer(r.ctx(), r.sandbox, conf, r.conf)
	if err != nil {
		t.Fatalf("CreateContainer: %v", err)
	}
	if err := r.Runtime.StartContainer(r.ctx(), id); err == nil {
		t.Error("StartContainer of a command that is not there: no error")
	}
	st := r.status(id)
	if st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetStartedAt() != 0 || st.GetFinishedAt() == 0 ||
		st.GetExitCode() != 128 || st.GetReason() != "StartError" || !strings.Contains(st.GetMessage(), "/no/such/file") {
		t.Errorf("status %v, want exited with 128, StartError, the command, and no start", st)
	}
	if err := r.Runtime.StartContainer(r.ctx(), id); err == nil {
		t.Error("second StartContainer: no error")
	}
}

func testLogs(t *testing.T, r *fixture) {
	id := r.create("c", "out", "hello", "err", "oops", "exit", "0")
	r.start(id)
	st := r.untilExited(id)
	path := filepath.Join(r.conf.GetLogDirectory(), "c.log")
	if st.GetLogPath() != path {
		t.Errorf("log path %q, want %q", st.GetLogPath(), path)
	}
	var lines []string
	r.until("both lines are in the log", func() bool {
		b, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		lines = strings.Split(strings.TrimSpace(string(b)), "\n")
		return len(lines) == 2
	})
	slices.SortFunc(lines, func(a, b string) int {
		return strings.Compare(a[strings.Index(a, "std"):], b[strings.Index(b, "std"):])
	})
	for i, want := range []string{" stderr F oops", " stdout F hello"} {
		stamp, _, _ := strings.Cut(lines[i], " ")
		if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil || !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %q, want a time and %q", lines[i], want)
		}
	}
}

// testReopenLog tests that the runtime writes to a renamed log until the log is reopened.
func testReopenLog(t *testing.T, r *fixture) {
	id := r.create("c", "out", "one", "sleep", "2s", "out", "two", "sleep", "forever")
	r.start(id)
	path := filepath.Join(r.conf.GetLogDirectory(), "c.log")
	has := func(path, text string) func() bool {
		return func() bool {
			b, _ := os.ReadFile(path)
			return strings.HasSuffix(strings.TrimSpace(string(b)), text)
		}
	}
	r.until("the first line is in the log", has(path, "one"))
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := r.Runtime.ReopenContainerLog(r.ctx(), id); err != nil {
		t.Fatal(err)
	}
	r.until("the second line is in a new log", has(path, "two"))
	if !has(path+".old", "one")() {
		t.Error("the old log has more than the first line")
	}
	if err := r.Runtime.StopContainer(r.ctx(), id, 0); err != nil {
		t.Fatal(err)
	}
	r.untilExited(id)
	if err := r.Runtime.ReopenContainerLog(r.ctx(), id); err == nil {
		t.Error("the log of a container that has ended was reopened")
	}
	if err := r.Runtime.ReopenContainerLog(r.ctx(), "none"); !cri.IsNotFound(err) {
		t.Errorf("log of what is not there: %v, want NotFound", err)
	}
}

func testStop(t *testing.T, r *fixture) {
	polite := r.create("polite", "trap", "7", "0s", "out", "ready", "sleep", "forever")
	stubborn := r.create("stubborn", "ignore", "out", "ready", "sleep", "forever")
	for _, name := range []string{"polite", "stubborn"} {
		r.start(map[string]string{"polite": polite, "stubborn": stubborn}[name])
		r.until(name+" is ready", func() bool {
			b, _ := os.ReadFile(filepath.Join(r.conf.GetLogDirectory(), name+".log"))
			return strings.Contains(string(b), "ready")
		})
	}
	if err := r.Runtime.StopContainer(t.Context(), polite, 30); err != nil {
		t.Fatal(err)
	}
	if st := r.status(polite); st.GetExitCode() != 7 {
		t.Errorf("exit code after TERM %d, want 7", st.GetExitCode())
	}
	start := time.Now()
	if err := r.Runtime.StopContainer(t.Context(), stubborn, 1); err != nil {
		t.Fatal(err)
	}
	if st := r.status(stubborn); st.GetExitCode() != 137 || time.Since(start) < time.Second {
		t.Errorf("exit code after KILL %d after %v, want 137 after 1s", st.GetExitCode(), time.Since(start))
	}
}

// testResources tests that the resources of a running container can be changed one by one, and that
// the status shows them.
func testResources(t *testing.T, r *fixture) {
	conf := r.container("c", "sleep", "forever")
	conf.Linux.Resources = &runtimeapi.LinuxContainerResources{
		CpuPeriod: 100000, CpuQuota: 20000, CpuShares: 204, MemoryLimitInBytes: 64 << 20,
	}
	id, err := r.Runtime.CreateContainer(t.Context(), r.sandbox, conf, r.conf)
	if err != nil {
		t.Fatal(err)
	}
	r.start(id)
	want := func(quota, shares, memory int64) {
		t.Helper()
		l := r.status(id).GetResources().GetLinux()
		if l.GetCpuPeriod() != 100000 || l.GetCpuQuota() != quota || l.GetCpuShares() != shares || l.GetMemoryLimitInBytes() != memory {
			t.Errorf("resources %v, want quota %d, shares %d, memory %d", l, quota, shares, memory)
		}
	}
	want(20000, 204, 64<<20)
	for _, to := range []*runtimeapi.LinuxContainerResources{
		{MemoryLimitInBytes: 96 << 20},
		{CpuPeriod: 100000, CpuQuota: 30000, CpuShares: 307},
	} {
		if err := r.Runtime.UpdateContainerResources(t.Context(), id, &runtimeapi.ContainerResources{Linux: to}); err != nil {
			t.Fatal(err)
		}
	}
	want(30000, 307, 96<<20)
	st, err := r.Runtime.ContainerStats(t.Context(), id)
	if err != nil || st.GetMemory().GetWorkingSetBytes().GetValue() == 0 {
		t.Errorf("memory in use: %v, %v", st.GetMemory(), err)
	}
	if r.status(id).GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Error("the container does not run any more")
	}
	if err := r.Runtime.UpdateContainerResources(t.Context(), "none", &runtimeapi.ContainerResources{}); !cri.IsNotFound(err) {
		t.Errorf("update of what is not there: %v, want NotFound", err)
	}
}

func testFilters(t *testing.T, r *fixture) {
	a, b := r.create("a", "sleep", "forever"), r.create("b", "sleep", "forever")
	r.start(a)
	ids := func(f *runtimeapi.ContainerFilter) []string {
		list, err := r.Runtime.ListContainers(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, c := range list {
			out = append(out, c.GetId())
		}
		slices.Sort(out)
		return out
	}
	both := []string{a, b}
	slices.Sort(both)
	uid := r.conf.GetMetadata().GetUid()
	for _, tc := range []struct {
		what string
		f    *runtimeapi.ContainerFilter
		want []string
	}{
		{"sandbox", &runtimeapi.ContainerFilter{PodSandboxId: r.sandbox}, both},
		{"pod UID", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{cri.LabelPodUID: uid}}, both},
		{"name", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{cri.LabelPodUID: uid, cri.LabelContainerName: "b"}}, []string{b}},
		{"id", &runtimeapi.ContainerFilter{Id: a}, []string{a}},
		{"state", &runtimeapi.ContainerFilter{PodSandboxId: r.sandbox, State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}, []string{a}},
		{"no such pod", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{cri.LabelPodUID: "nobody"}}, nil},
	} {
		if got := ids(tc.f); !slices.Equal(got, tc.want) {
			t.Errorf("by %s: %v, want %v", tc.what, got, tc.want)
		}
	}
	list, err := r.Runtime.ListPodSandbox(t.Context(), &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{cri.LabelPodUID: uid}})
	if err != nil || len(list) != 1 || list[0].GetId() != r.sandbox {
		t.Errorf("sandboxes by pod UID: %v, %v", list, err)
	}
}

func testIdempotence(t *testing.T, r *fixture) {
	id := r.create("c", "exit", "0")
	r.start(id)
	r.untilExited(id)
	for range 2 {
		if err := r.Runtime.StopContainer(t.Context(), id, 1); err != nil {
			t.Errorf("stop of an exited container: %v", err)
		}
	}
	for range 2 {
		if err := r.Runtime.RemoveContainer(t.Context(), id); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if err := r.Runtime.StopContainer(t.Context(), id, 1); err != nil && !cri.IsNotFound(err) {
		t.Errorf("stop of a removed container: %v", err)
	}
	for range 2 {
		if err := r.Runtime.StopPodSandbox(t.Context(), r.sandbox); err != nil {
			t.Errorf("stop of the sandbox: %v", err)
		}
	}
	for range 2 {
		if err := r.Runtime.RemovePodSandbox(t.Context(), r.sandbox); err != nil {
			t.Errorf("remove of the sandbox: %v", err)
		}
	}
	if _, err := r.Runtime.PodSandboxStatus(t.Context(), r.sandbox, false); !cri.IsNotFound(err) {
		t.Errorf("status of a removed sandbox: %v, want NotFound", err)
	}
}

func testReserved(t *testing.T, r *fixture) {
	if _, err := r.Runtime.RunPodSandbox(t.Context(), r.conf, ""); err == nil || !strings.Contains(err.Error(), "is reserved for") {
		t.Errorf("second sandbox of one attempt: %v", err)
	}
	r.create("c", "sleep", "forever")
	if _, err := r.Runtime.CreateContainer(t.Context(), r.sandbox, r.container("c"), r.conf); err == nil || !strings.Contains(err.Error(), "is reserved for") {
		t.Errorf("second container of one attempt: %v", err)
	}
}

func testSandboxEnds(t *testing.T, r *fixture) {
	id := r.create("c", "sleep", "forever")
	r.start(id)
	if err := r.Runtime.StopPodSandbox(t.Context(), r.sandbox); err != nil {
		t.Fatal(err)
	}
	r.untilExited(id)
	sb, err := r.Runtime.PodSandboxStatus(t.Context(), r.sandbox, false)
	if err != nil || sb.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("stopped sandbox: %v, %v", sb, err)
	}
	if err := r.Runtime.RemovePodSandbox(t.Context(), r.sandbox); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Runtime.ContainerStatus(t.Context(), id, false); !cri.IsNotFound(err) {
		t.Errorf("container of a removed sandbox: %v, want NotFound", err)
	}
}

func testEvents(t *testing.T, r *fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch := make(chan *runtimeapi.ContainerEventResponse, 1000)
	opened := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Runtime.GetContainerEvents(ctx, ch, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(opened) })
	}()
	<-opened
	// A runtime may start to send events a moment after it has opened the stream: create
	// containers until an event arrives.
	heard := func() bool {
		id := r.create("noise", "exit", "0")
		defer func() { _ = r.Runtime.RemoveContainer(t.Context(), id) }()
		select {
		case <-ch:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	}
	r.until("an event comes", heard)
	id := r.create("c", "exit", "3")
	r.start(id)
	r.untilExited(id)
	if err := r.Runtime.RemoveContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	want := []runtimeapi.ContainerEventType{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
	}
	var got []runtimeapi.ContainerEventType
	timeout := time.After(2 * time.Minute)
	for len(got) < len(want) {
		select {
		case ev := <-ch:
			if ev.GetContainerId() != id {
				continue
			}
			if uid := ev.GetPodSandboxStatus().GetMetadata().GetUid(); uid != r.conf.GetMetadata().GetUid() {
				t.Errorf("event %v is of pod %q", ev.GetContainerEventType(), uid)
			}
			got = append(got, ev.GetContainerEventType())
		case <-timeout:
			t.Fatalf("events %v, want %v", got, want)
		}
	}
	slices.Sort(got) // a container that ends at once may overtake its own start
	if !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	cancel()
	<-done
}

func testImages(t *testing.T, r *fixture) {
	st, err := r.Images.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: r.Image}, false)
	if err != nil || st.GetImage().GetId() == "" {
		t.Fatalf("image that is there: %v, %v", st, err)
	}
	st, err = r.Images.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: "localhost/no/such:1"}, false)
	if err != nil || st.GetImage() != nil {
		t.Errorf("image that is not there: %v, %v; want neither", st, err)
	}
	if _, err := r.Images.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "localhost:1/no/such:1"}, nil, nil); err == nil {
		t.Error("pull of an image that is nowhere succeeded")
	}
}

// testNameMoves tests an image whose name another image got: it stays, with its containers, until
// it is removed, and its removal does not remove the other image.
func testNameMoves(t *testing.T, r *fixture) {
	pull := func() (name string) {
		t.Helper()
		name = r.Offer("moves:1")
		if _, err := r.Images.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: name}, nil, r.conf); err != nil {
			t.Fatalf("PullImage: %v", err)
		}
		return name
	}
	image := func(ref string) *runtimeapi.Image {
		t.Helper()
		st, err := r.Images.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: ref}, false)
		if err != nil {
			t.Fatalf("ImageStatus: %v", err)
		}
		return st.GetImage()
	}
	remove := func(ref string) {
		t.Helper()
		if err := r.Images.RemoveImage(t.Context(), &runtimeapi.ImageSpec{Image: ref}); err != nil {
			t.Errorf("RemoveImage: %v", err)
		}
	}
	name := pull()
	first := image(name).GetId()
	pull()
	second := image(name).GetId()
	if first == "" || second == "" || first == second {
		t.Fatalf("%s is image %q and after a pull of another one %q", name, first, second)
	}
	if got := image(first); got.GetId() != first || len(got.GetRepoTags()) > 0 {
		t.Errorf("the image from before: %v, want it without a tag", got)
	}
	if got := image(second); !slices.Equal(got.GetRepoTags(), []string{name}) {
		t.Errorf("the image from after: %v, want it with the tag %s", got, name)
	}
	r.Image = first
	c := r.create("a", "exit", "3")
	r.start(c)
	if code := r.untilExited(c).GetExitCode(); code != 3 {
		t.Errorf("a container of the image from before ended with code %d, want 3", code)
	}
	remove(first)
	remove(first)
	if image(first) != nil || image(name).GetId() != second {
		t.Errorf("after the removal of the first: it is %v, and %s is %v, want %s", image(first), name, image(name), second)
	}
	remove(name)
	if image(second) != nil || image(name) != nil {
		t.Error("an image that was removed by its name is there by its ID, or still has the name")
	}
}
