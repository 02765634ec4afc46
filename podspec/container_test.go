package podspec

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestContainer(t *testing.T) {
	in := input(t, `{containers: [{name: other, image: i}, {name: app, image: registry/app:1,
		command: [sh, -c, $(GREETING)], args: [$(GREETING) $(NONE), $$(GREETING)], workingDir: /srv, stdin: true, stdinOnce: true, tty: true,
		env: [{name: GREETING, value: hello}]}]}`)
	in.RuntimeHandler = "kata"
	plan, err := Container(in, "app", ContainerOptions{RestartCount: 4, Image: ImageFacts{Ref: "sha256:1"}})
	if err != nil {
		t.Fatal(err)
	}
	c := plan.Config
	if c.Metadata.Name != "app" || c.Metadata.Attempt != 4 {
		t.Errorf("metadata = %v, want app, attempt 4", c.Metadata)
	}
	if i := c.Image; i.Image != "sha256:1" || i.UserSpecifiedImage != "registry/app:1" || i.RuntimeHandler != "kata" {
		t.Errorf("image = %v", i)
	}
	if got, want := strings.Join(c.Command, "|"), "sh|-c|hello"; got != want {
		t.Errorf("command = %s, want %s", got, want)
	}
	if got, want := strings.Join(c.Args, "|"), "hello $(NONE)|$(GREETING)"; got != want {
		t.Errorf("arguments = %s, want %s", got, want)
	}
	if c.WorkingDir != "/srv" || !c.Stdin || !c.StdinOnce || !c.Tty {
		t.Errorf("directory %q, stdin %t, once %t, tty %t", c.WorkingDir, c.Stdin, c.StdinOnce, c.Tty)
	}
	if want := "app/4.log"; c.LogPath != want {
		t.Errorf("log = %q, want %q", c.LogPath, want)
	}
	labels := map[string]string{
		"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "prod", "io.kubernetes.pod.uid": "u1",
		"io.kubernetes.container.name": "app",
	}
	if !maps.Equal(c.Labels, labels) {
		t.Errorf("labels = %v, want %v", c.Labels, labels)
	}
	if d := plan.Dirs[0]; d.Path != "/var/log/pods/prod_web_u1/app" || d.Mode != 0o755 {
		t.Errorf("first directory = %v, want that of the log", d)
	}
}

func TestFind(t *testing.T) {
	in := input(t, `{initContainers: [{name: setup, image: i}, {name: proxy, image: i, restartPolicy: Always}],
		containers: [{name: app, image: i}], ephemeralContainers: [{name: debug, image: i}]}`)
	for _, tc := range []struct {
		name  string
		group Group
		path  string
	}{
		{"setup", Init, "spec.initContainers[0]"},
		{"proxy", Init, "spec.initContainers[1]"},
		{"app", Regular, "spec.containers[0]"},
		{"debug", Ephemeral, "spec.ephemeralContainers[0]"},
	} {
		c, group, path, err := Find(in.Pod, tc.name)
		if err != nil || c.Name != tc.name || group != tc.group || path.String() != tc.path {
			t.Errorf("%s: found %v in %v at %v (%v), want %v at %s", tc.name, c, group, path, err, tc.group, tc.path)
		}
	}
	_, err := Container(in, "none", ContainerOptions{})
	if want := `container "none" of pod prod/web: no such container`; !errors.Is(err, ErrNoContainer) || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

func TestCompile(t *testing.T) {
	in := input(t, `{initContainers: [{name: setup, image: i}], hostname: A,
		containers: [{name: app, image: i, envFrom: [{secretRef: {name: s}}]}], ephemeralContainers: [{name: debug, image: i}]}`)
	out, err := Compile(in)
	var problems Problems
	errors.As(err, &problems)
	var got []string
	for _, c := range out.Containers {
		got = append(got, c.Config.Metadata.Name)
	}
	if want := "setup app debug"; strings.Join(got, " ") != want || out.Sandbox == nil {
		t.Errorf("containers = %v, sandbox %v; want %s and one", got, out.Sandbox, want)
	}
	if len(problems) != 2 || problems[0].Path != "spec.hostname" || problems[1].Path != "spec.containers[0].envFrom[0].secretRef" {
		t.Errorf("problems = %v, want those of the sandbox and of app", problems)
	}
	if problems.Error() != problems[0].Error()+"; "+problems[1].Error() {
		t.Errorf("as an error: %v", problems)
	}
	if _, none := Compile(input(t, "{containers: [{name: app, image: i}]}")); none != nil {
		t.Errorf("problems = %v, want none", none)
	}
}

func TestHash(t *testing.T) {
	// What kubelets of v1.31 to v1.36 have in the annotations of containers.
	for want, c := range map[string]v1.Container{
		"646fef1b": {Name: "a", Image: "b"},
		"da9db0a7": {Name: "name-with<>&", Image: "registry.k8s.io/x@sha256:1"},
	} {
		if got := Hash(&c); got != want {
			t.Errorf("hash of %+v = %s, want %s", c, got, want)
		}
	}
	c := v1.Container{Name: "app", Image: "i"}
	more := c
	more.Env = []v1.EnvVar{{Name: "A"}}
	if Hash(&more) != Hash(&c) {
		t.Error("a variable changes the hash")
	}
	for _, o := range []v1.Container{{Name: "app", Image: "j"}, {Name: "b", Image: "i"}, {Name: "app"}} {
		if Hash(&o) == Hash(&c) {
			t.Errorf("%s of %s has the same hash", o.Name, o.Image)
		}
	}
}

func TestAnnotations(t *testing.T) {
	in := input(t, `{terminationGracePeriodSeconds: 30, containers: [
		{name: bare, image: i},
		{name: app, image: i, resources: {limits: {cpu: 1}}, terminationMessagePath: /dev/log, terminationMessagePolicy: File,
		 ports: [{name: http, containerPort: 80, protocol: TCP}], lifecycle: {preStop: {exec: {command: [bye]}}, postStart: {exec: {command: [hi]}}}}]}`)
	const prefix = "io.kubernetes."
	want := map[string]string{
		prefix + "container.hash": Hash(&in.Pod.Spec.Containers[0]), prefix + "container.restartCount": "0",
		prefix + "container.terminationMessagePath": "", prefix + "container.terminationMessagePolicy": "",
		prefix + "pod.terminationGracePeriod": "30",
		"io.nodewright.container.resources":   "{}",
	}
	if got := compile(t, in, "bare").Annotations; !maps.Equal(got, want) {
		t.Errorf("annotations = %v, want %v", got, want)
	}
	grace := int64(5)
	in.Pod.DeletionGracePeriodSeconds = &grace
	plan, err := Container(in, "app", ContainerOptions{RestartCount: 7})
	if err != nil {
		t.Fatal(err)
	}
	want = map[string]string{
		prefix + "container.hash": Hash(&in.Pod.Spec.Containers[1]), prefix + "container.restartCount": "7",
		prefix + "container.terminationMessagePath": "/dev/log", prefix + "container.terminationMessagePolicy": "File",
		prefix + "pod.terminationGracePeriod": "30", prefix + "pod.deletionGracePeriod": "5",
		prefix + "container.preStopHandler": `{"exec":{"command":["bye"]}}`,
		prefix + "container.ports":          `[{"name":"http","containerPort":80,"protocol":"TCP"}]`,
		"io.nodewright.container.resources": `{"limits":{"cpu":"1"}}`,
	}
	if got := plan.Config.Annotations; !maps.Equal(got, want) {
		t.Errorf("annotations = %v, want %v", got, want)
	}
}

func TestStopSignal(t *testing.T) {
	for _, tc := range []struct {
		lifecycle string
		want      runtimeapi.Signal
	}{
		{"null", runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT},
		{"{}", runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT},
		{"{stopSignal: SIGTERM}", runtimeapi.Signal_SIGNAL_SIGTERM},
		{"{stopSignal: SIGUSR1}", runtimeapi.Signal_SIGNAL_SIGUSR1},
		{"{stopSignal: SIGKILL}", runtimeapi.Signal_SIGNAL_SIGKILL},
		{"{stopSignal: SIGRTMIN}", runtimeapi.Signal_SIGNAL_SIGRTMIN},
		{"{stopSignal: SIGRTMIN+3}", runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3},
		{"{stopSignal: SIGRTMAX-14}", runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS14},
		{"{stopSignal: SIGRTMAX}", runtimeapi.Signal_SIGNAL_SIGRTMAX},
		{"{stopSignal: SIGNONE}", runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT},
	} {
		in := input(t, "{containers: [{name: app, image: i, lifecycle: "+tc.lifecycle+"}]}")
		if got := compile(t, in, "app").StopSignal; got != tc.want {
			t.Errorf("%s: stop signal = %v, want %v", tc.lifecycle, got, tc.want)
		}
	}
}

// mount formats a mount as host -> container, with its options.
func mount(m *runtimeapi.Mount) string {
	s := m.HostPath + " -> " + m.ContainerPath
	if m.Image != nil {
		s = "image " + m.Image.Image + " " + m.ImageSubPath + " -> " + m.ContainerPath
	}
	if m.Readonly {
		s += " ro"
	}
	if m.RecursiveReadOnly {
		s += " recursive"
	}
	if m.Propagation != runtimeapi.MountPropagation_PROPAGATION_PRIVATE {
		s += " " + strings.ToLower(strings.TrimPrefix(m.Propagation.String(), "PROPAGATION_"))
	}
	return s
}

func TestMounts(t *testing.T) {
	for _, tc := range []struct{ name, mounts, want, parts string }{
		{name: "none"},
		{name: "one", mounts: "{name: data, mountPath: /d}", want: "/vol/data -> /d"},
		{name: "in order", mounts: "{name: host, mountPath: /b}, {name: data, mountPath: /a}", want: "/mnt/x -> /b, /vol/data -> /a"},
		{name: "one volume twice", mounts: "{name: data, mountPath: /b}, {name: data, mountPath: /a}", want: "/vol/data -> /b, /vol/data -> /a"},
		{name: "relative", mounts: "{name: data, mountPath: d}", want: "/vol/data -> /d"},
		{name: "read-only", mounts: "{name: data, mountPath: /d, readOnly: true}", want: "/vol/data -> /d ro"},
		{name: "recursively", mounts: "{name: data, mountPath: /d, readOnly: true, recursiveReadOnly: Enabled}", want: "/vol/data -> /d ro recursive"},
		{name: "not recursively", mounts: "{name: data, mountPath: /d, readOnly: true, recursiveReadOnly: Disabled}", want: "/vol/data -> /d ro"},
		{name: "recursively, if possible", mounts: "{name: data, mountPath: /d, readOnly: true, recursiveReadOnly: IfPossible}", want: "/vol/data -> /d ro recursive"},
		{name: "not possible where one may write", mounts: "{name: data, mountPath: /d, recursiveReadOnly: IfPossible}", want: "/vol/data -> /d"},
		{name: "not possible with propagation", mounts: "{name: data, mountPath: /d, readOnly: true, recursiveReadOnly: IfPossible, mountPropagation: HostToContainer}", want: "/vol/data -> /d ro host_to_container"},
		{name: "no propagation", mounts: "{name: data, mountPath: /d, mountPropagation: None}", want: "/vol/data -> /d"},
		{name: "from the host", mounts: "{name: data, mountPath: /d, mountPropagation: HostToContainer}", want: "/vol/data -> /d host_to_container"},
		{name: "both ways", mounts: "{name: data, mountPath: /d, mountPropagation: Bidirectional}", want: "/vol/data -> /d bidirectional"},
		{name: "subPath", mounts: "{name: data, mountPath: /d, subPath: a/b}", want: "/vol/data/a/b -> /d", parts: "/vol/data/a/b"},
		{name: "subPath with dots in a name", mounts: "{name: data, mountPath: /d, subPath: a..b}", want: "/vol/data/a..b -> /d", parts: "/vol/data/a..b"},
		{name: "subPath is not expanded", mounts: "{name: data, mountPath: /d, subPath: $(WHO)}", want: "/vol/data/$(WHO) -> /d", parts: "/vol/data/$(WHO)"},
		{name: "subPathExpr", mounts: "{name: data, mountPath: /d, subPathExpr: logs/$(WHO)}", want: "/vol/data/logs/web -> /d", parts: "/vol/data/logs/web"},
		{name: "subPathExpr that comes to nothing", mounts: "{name: data, mountPath: /d, subPathExpr: $(EMPTY)}", want: "/vol/data -> /d"},
		{name: "image", mounts: "{name: pics, mountPath: /d}", want: "image registry/pics:1  -> /d ro"},
		{name: "part of an image", mounts: "{name: pics, mountPath: /d, subPath: jpg}", want: "image registry/pics:1 jpg -> /d ro"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := mounting(t, tc.mounts)
			in.Handler.RecursiveReadOnly = true
			plan, err := Container(in, "app", ContainerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got, parts []string
			for _, m := range plan.Config.Mounts {
				got = append(got, mount(m))
			}
			for _, s := range plan.SubPaths {
				if s.Mount != s.Index || s.Volume != "data" {
					t.Errorf("part of a volume %+v", s)
				}
				parts = append(parts, s.VolumePath+"/"+s.Path)
			}
			if got := strings.Join(got, ", "); got != tc.want {
				t.Errorf("mounts = %s, want %s", got, tc.want)
			}
			if got := strings.Join(parts, ", "); got != tc.parts {
				t.Errorf("parts of volumes = %s, want %s", got, tc.parts)
			}
		})
	}
}

// mounting is a pod whose one container has those mounts of an emptyDir, a
// hostPath and an image.
func mounting(t *testing.T, mounts string) Input {
	in := input(t, `{volumes: [{name: data, emptyDir: {}}, {name: host, hostPath: {path: /mnt/x}}, {name: pics, image: {reference: "registry/pics:1"}}, {name: late, emptyDir: {}}],
		containers: [{name: app, image: i, volumeMounts: [`+mounts+`], env: [
			{name: EMPTY}, {name: UP, value: ../x}, {name: ROOT, value: /etc},
			{name: WHO, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]}`)
	in.Volumes = map[string]string{"data": "/vol/data", "host": "/mnt/x"}
	return in
}

func TestMountProblems(t *testing.T) {
	const path = "spec.containers[0].volumeMounts[0]."
	for _, tc := range []struct{ name, mounts, want string }{
		{"not ready", "{name: late, mountPath: /d}", path + `name: volume "late" is not ready`},
		{"not there", "{name: none, mountPath: /d}", path + `name: volume "none" is not ready`},
		{"absolute subPath", "{name: data, mountPath: /d, subPath: /a}", path + "subPath: "},
		{"subPath upwards", "{name: data, mountPath: /d, subPath: ..}", path + "subPath: "},
		{"subPath upwards and down", "{name: data, mountPath: /d, subPath: a/../b}", path + "subPath: "},
		{"subPathExpr of what is not set", "{name: data, mountPath: /d, subPathExpr: $(WHO)/$(NONE)/$(NADA)}", path + `subPathExpr: "$(WHO)/$(NONE)/$(NADA)" refers to NONE, NADA, which is not set`},
		{"subPathExpr upwards", "{name: data, mountPath: /d, subPathExpr: $(UP)}", path + "subPathExpr: "},
		{"absolute subPathExpr", "{name: data, mountPath: /d, subPathExpr: $(ROOT)}", path + "subPathExpr: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan, err := Container(mounting(t, tc.mounts), "app", ContainerOptions{})
			if !strings.HasPrefix(text(err), tc.want) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
			if len(plan.Config.Mounts) > 0 {
				t.Errorf("mounts = %v, want none", plan.Config.Mounts)
			}
		})
	}
}

func TestRecursiveReadOnlyProblems(t *testing.T) {
	for _, tc := range []struct{ mount, able, want string }{
		{"recursiveReadOnly: Enabled", "yes", "Enabled takes readOnly: true"},
		{"recursiveReadOnly: Enabled, readOnly: true, mountPropagation: Bidirectional", "yes", "Enabled takes mountPropagation: None"},
		{"recursiveReadOnly: Enabled, readOnly: true", "", `Enabled takes a runtime handler that can do it, and "kata" cannot`},
		{"recursiveReadOnly: IfPossible, readOnly: true", "", ""},
	} {
		in := mounting(t, "{name: data, mountPath: /d, "+tc.mount+"}")
		in.RuntimeHandler, in.Handler.RecursiveReadOnly = "kata", tc.able != ""
		want := ""
		if tc.want != "" {
			want = "spec.containers[0].volumeMounts[0].recursiveReadOnly: " + tc.want
		}
		if _, err := Container(in, "app", ContainerOptions{}); text(err) != want {
			t.Errorf("%s: error %v, want %q", tc.mount, err, want)
		}
	}
}

func TestDevices(t *testing.T) {
	in := input(t, "{containers: [{name: app, image: i, volumeDevices: [{name: disk, devicePath: /dev/xvda}, {name: gone, devicePath: /dev/b}]}]}")
	in.Volumes = map[string]string{"disk": "/dev/sdb"}
	plan, err := Container(in, "app", ContainerOptions{})
	if want := `spec.containers[0].volumeDevices[1].name: volume "gone" is not ready`; text(err) != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	if d := plan.Config.Devices; len(d) != 1 || d[0].HostPath != "/dev/sdb" || d[0].ContainerPath != "/dev/xvda" || d[0].Permissions != "mrw" {
		t.Errorf("devices = %v, want the one that is ready", d)
	}
}

func TestTerminationMessage(t *testing.T) {
	in := input(t, "{containers: [{name: app, image: i, terminationMessagePath: /dev/termination-log}, {name: bare, image: i}]}")
	plan, err := Container(in, "app", ContainerOptions{RestartCount: 2})
	if err != nil {
		t.Fatal(err)
	}
	const file = "/pods/u1/containers/app/termination-log-2"
	if got := TerminationMessageFile(in, &in.Pod.Spec.Containers[0], 2); got != file {
		t.Errorf("file = %q, want %q", got, file)
	}
	if len(plan.Config.Mounts) != 1 || mount(plan.Config.Mounts[0]) != file+" -> /dev/termination-log" {
		t.Errorf("mounts = %v, want the file alone", plan.Config.Mounts)
	}
	if want := (File{Path: file, Mode: 0o666, Keep: true}); len(plan.Files) != 1 || plan.Files[0] != want {
		t.Errorf("files = %v, want %v", plan.Files, want)
	}
	if want := fmt.Sprint(Dir{"/pods/u1/containers/app", fs.FileMode(0o750)}); fmt.Sprint(plan.Dirs[1]) != want {
		t.Errorf("directory = %v, want %v", plan.Dirs[1], want)
	}
	if got := TerminationMessageFile(in, &in.Pod.Spec.Containers[1], 2); got != "" {
		t.Errorf("without a path: file = %q, want none", got)
	}
	in.PodDir = ""
	if got := TerminationMessageFile(in, &in.Pod.Spec.Containers[0], 2); got != "" || len(compile(t, in, "app").Mounts) > 0 {
		t.Errorf("without a directory: file = %q, want none", got)
	}
}
