package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
)

const thing = "example.com/thing"

// thingPod is the manifest of a pod that asks for devices.
func thingPod(name, resource string, n int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: '%s', args: [sleep, forever], resources: {limits: {%s: '%d'}}}
`, name, sampleimage.Testbox, resource, n)
}

// plug is a device plugin, as a process of its own.
type plug struct {
	l       *lab
	program string
	devices string // its files are the devices
	cmd     *exec.Cmd
	said    bytes.Buffer
}

func newPlug(l *lab) *plug {
	l.t.Helper()
	p := &plug{l: l, program: testprogram.Build(l.t, "./examples/deviceplugin"), devices: filepath.Join(filepath.Dir(l.manifests), "things")}
	l.must(os.Mkdir(p.devices, 0o755))
	l.t.Cleanup(p.kill)
	return p
}

func (p *plug) start() {
	p.l.t.Helper()
	p.l.must(os.MkdirAll(p.l.sockets(), 0o750)) // a plugin may come before the first agent
	p.cmd = exec.Command(p.program, "--resource", thing, "--devices", p.devices, "--sockets", p.l.sockets(), "--cdi", filepath.Join(p.l.c.Dir, "cdi"))
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	p.l.must(p.cmd.Start())
}

// kill is SIGKILL.
func (p *plug) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.cmd = nil
	}
	if p.l.t.Failed() {
		p.l.t.Logf("the plugin said:\n%s", tail(p.said.String(), 20))
	}
}

func (l *lab) sockets() string { return filepath.Join(l.root, "device-plugins") }

// testbox is what a command in a pod's container says.
func (l *lab) testbox(pod string, args ...string) string {
	l.t.Helper()
	return l.ask(append([]string{"exec", pod, "--", "/testbox"}, args...)...)
}

// waitsFor reports whether a pod waits, and for what.
func waitsFor(p *v1.Pod, reason string) bool {
	return p != nil && p.Status.Phase == v1.PodPending && p.Status.Reason == reason
}

// A pod sees its devices inside, and keeps them when the plugin is killed and then the agent.
// In which order they come back, and what a boot changes, is tested in packages devicemgr and agent/resources.
func TestDevicePlugin(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	p := newPlug(l)
	l.must(os.WriteFile(filepath.Join(p.devices, "a"), []byte("the first thing"), 0o600))
	l.must(unix.Mknod(filepath.Join(p.devices, "b"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))) // as /dev/zero
	l.must(os.WriteFile(filepath.Join(p.devices, "c"), nil, 0o600))
	l.must(os.WriteFile(filepath.Join(p.devices, "d"), nil, 0o600))

	// The agent is first, and the plugin one that this node has never seen.
	l.write("two.yaml", thingPod("two", thing, 2))
	l.write("plain.yaml", box("plain", "sleep, forever"))
	l.start()
	l.untilReady("plain")
	l.until("waits for a plugin", func(now map[string]*v1.Pod) bool { return waitsFor(now["two"], "OutOf"+thing) })
	p.start()
	two := containerID(l.untilReady("two")["two"], "c")
	env := l.testbox("two", "env", ".")
	for _, want := range []string{"DEVICES=a,b", "CDI_a=here", "CDI_b=here"} {
		if !strings.Contains(env, want) {
			t.Errorf("no %s in the environment:\n%s", want, env)
		}
	}
	if got := l.testbox("two", "cat", "/dev/things/a"); !strings.Contains(got, "the first thing") {
		t.Errorf("the file that is mounted has %q", got)
	}
	mode, err := os.Stat(fmt.Sprintf("/proc/%d/root/dev/things/b", l.pid(two)))
	if err != nil || mode.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("the device node is %v, %v", mode, err)
	}
	l.wantHolds("two", "a,b")
	if why := l.ask("fit", "-f", l.file("dry", thingPod("dry", thing, 1))); !strings.Contains(why, thing+"=c") {
		t.Errorf("agent fit says %q", why)
	}

	same := func(when string) {
		t.Helper()
		if now := containerID(l.untilReady("two")["two"], "c"); now != two {
			t.Fatalf("%s: the container was replaced", when)
		}
	}
	// The plugin is killed, and comes again.
	p.kill()
	l.until("unknown health", func(now map[string]*v1.Pod) bool { return health(now["two"]) == v1.ResourceHealthStatusUnknown })
	l.write("three.yaml", thingPod("three", thing, 1))
	l.until("waits for the plugin", func(now map[string]*v1.Pod) bool { return waitsFor(now["three"], "DevicesNotReady") })
	if why := l.ask("why", "three"); !strings.Contains(why, "it waits for "+thing+": its plugin does not answer") {
		t.Errorf("agent why says %q", why)
	}
	p.start()
	l.untilReady("three")
	l.wantHolds("three", "c")
	same("after the plugin's end")
	l.must(os.Remove(filepath.Join(p.devices, "a")))
	l.until("unhealthy", func(now map[string]*v1.Pod) bool { return health(now["two"]) == v1.ResourceHealthStatusUnhealthy })
	l.must(os.WriteFile(filepath.Join(p.devices, "a"), nil, 0o600))
	l.until("healthy", func(now map[string]*v1.Pod) bool { return health(now["two"]) == v1.ResourceHealthStatusHealthy })

	// The agent is killed while the plugin stays, which registers again.
	l.kill()
	l.start()
	same("after the agent's end")
	l.until("healthy again", func(now map[string]*v1.Pod) bool { return health(now["two"]) == v1.ResourceHealthStatusHealthy })
	l.wantHolds("two", "a,b")
}

// Devices of the machine are offered without a plugin: nodes by their paths, and those of a CDI
// specification. A pod has those that it asks for, and keeps them when the agent is killed; a pod
// that asks for none sees none. A node that is removed is an unhealthy device, and a new one is
// offered.
func TestHostDevices(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir, err := os.MkdirTemp("/dev", "nodewright-test")
	l.must(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	plug := func(name string, minor uint32) {
		t.Helper()
		l.must(unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))))
	}
	plug("port0", 3) // as /dev/null
	plug("port1", 5) // as /dev/zero
	plug("eye", 7)   // as /dev/full
	l.must(os.WriteFile(filepath.Join(l.c.Dir, "cdi", "camera.json"), fmt.Appendf(nil, `{
		"cdiVersion": "0.6.0", "kind": "nodewright.test/camera",
		"devices": [{"name": "front", "containerEdits": {"env": ["CAMERA=front"], "deviceNodes": [{"path": "/dev/camera", "hostPath": "%s/eye"}]}}]
	}`, dir), 0o600))
	l.args = []string{"--devices", l.file("devices.yaml", fmt.Sprintf(`
devices:
- {resource: example.com/port, paths: ['%s/port*']}
- {resource: example.com/camera, cdi: nodewright.test/camera}
cdiDirs: [%s]
`, dir, filepath.Join(l.c.Dir, "cdi")))}
	l.write("port.yaml", thingPod("port", "example.com/port", 1))
	l.write("camera.yaml", thingPod("camera", "example.com/camera", 1))
	l.write("plain.yaml", box("plain", "sleep, forever"))
	l.start()
	now := l.untilReady("port", "camera", "plain")
	id := strings.TrimPrefix(dir, "/dev/")
	l.wantHolds("port", id+"/port0")
	l.wantHolds("camera", "nodewright.test/camera=front")
	for name, want := range map[string][]string{"port": {dir + "/port0"}, "camera": {"/dev/camera"}, "plain": nil} {
		for _, node := range []string{dir + "/port0", dir + "/port1", dir + "/eye", "/dev/camera"} {
			info, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", l.pid(containerID(now[name], "c")), node))
			if has := err == nil && info.Mode()&os.ModeCharDevice != 0; has != slices.Contains(want, node) {
				t.Errorf("pod %s: %s is there: %v; want %q", name, node, has, want)
			}
		}
	}
	l.testbox("port", "cat", dir+"/port0") // it may
	if env := l.testbox("camera", "env", "."); !strings.Contains(env, "CAMERA=front") {
		t.Errorf("environment of the pod with the camera:\n%s", env)
	}

	is := func(want v1.ResourceHealthStatus) {
		t.Helper()
		l.until(string(want), func(now map[string]*v1.Pod) bool { return health(now["port"]) == want })
	}
	is(v1.ResourceHealthStatusHealthy)
	l.kill()
	l.must(os.Remove(filepath.Join(dir, "port0")))
	l.start()
	is(v1.ResourceHealthStatusUnknown) // this agent has never seen it
	plug("port0", 3)
	is(v1.ResourceHealthStatusHealthy)
	l.must(os.Remove(filepath.Join(dir, "port0")))
	is(v1.ResourceHealthStatusUnhealthy)
	l.wantHolds("port", id+"/port0")
	was := containerID(now["port"], "c")
	if is := containerID(l.untilReady("port")["port"], "c"); was != is {
		t.Error("the container was replaced")
	}
	// Without its device the container does not start again.
	l.must(syscall.Kill(l.pid(was), syscall.SIGKILL))
	missing := fmt.Sprintf("device %q of example.com/port is missing", id+"/port0")
	l.until("waits for its device", func(map[string]*v1.Pod) bool { return strings.Contains(l.ask("why", "port"), missing) })
	plug("port0", 3)
	l.until("started again", func(now map[string]*v1.Pod) bool { return ready(now["port"]) && containerID(now["port"], "c") != was })
	l.wantHolds("port", id+"/port0")

	// One that is plugged in later, for a pod that needs it beside the one that is free.
	plug("port2", 9) // as /dev/urandom
	two := thingPod("two", "example.com/port", 2)
	dry := l.file("dry", two)
	l.until("a second free port", func(map[string]*v1.Pod) bool { return fits(l, dry) })
	l.write("two.yaml", two)
	l.untilReady("two")
	l.wantHolds("two", id+"/port1,"+id+"/port2")
}

// fits reports whether the pod of a manifest would fit.
func fits(l *lab, file string) bool {
	return l.command(l.t.Context(), "fit", "-f", file).Run() == nil
}

// file is a file with a content.
func (l *lab) file(name, content string) string {
	file := l.config() + "." + name
	l.must(os.WriteFile(file, []byte(content), 0o600))
	return file
}

func health(p *v1.Pod) v1.ResourceHealthStatus {
	if p == nil || len(p.Status.ContainerStatuses) == 0 || len(p.Status.ContainerStatuses[0].AllocatedResourcesStatus) == 0 {
		return ""
	}
	return p.Status.ContainerStatuses[0].AllocatedResourcesStatus[0].Resources[0].Health
}

// wantHolds asks the podresources service, with the client of k8s.io/kubelet,
// which devices a pod has.
func (l *lab) wantHolds(pod, want string) {
	l.t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(l.root, "pod-resources", "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	l.must(err)
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(l.t.Context(), testTimeout)
	defer cancel()
	list, err := podresources.NewPodResourcesListerClient(conn).List(ctx, &podresources.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	l.must(err)
	var all []string
	for _, r := range list.GetPodResources() {
		if r.GetName() != pod+"-lab" {
			continue
		}
		for _, d := range r.GetContainers()[0].GetDevices() {
			all = append(all, d.GetDeviceIds()...)
		}
	}
	if got := strings.Join(all, ","); got != want {
		l.t.Errorf("podresources: %s has %q, want %q of %v", pod, got, want, list)
	}
}
