//go:build gpu

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
)

// A pod that asks for an NVIDIA GPU has one of those of the machine, without a device plugin, and a
// pod that does not ask has none. The CDI specification is that of nvidia-ctk, or without this
// program one of the test's own. make gpu runs it.
func TestGPU(t *testing.T) {
	nodes, err := filepath.Glob("/dev/nvidia[0-9]*")
	if err != nil || len(nodes) == 0 {
		t.Skip("this machine has no NVIDIA GPU: there is no /dev/nvidia0")
	}
	smi, err := exec.LookPath("nvidia-smi")
	if err != nil {
		t.Skip("nvidia-smi of the driver is missing: ", err)
	}
	t.Setenv("RUNTIME", containerdtest.LocalCRI)
	l := newLab(t)
	host := l.output(smi, "-L")
	if strings.Contains(host, "MIG ") {
		t.Skip("the GPUs are divided into MIG devices; this is about whole ones")
	}
	gpus := gpuLine.FindAllString(host, -1)
	t.Logf("the machine has\n%s", host)

	specification := filepath.Join(l.c.Dir, "cdi", "nvidia.yaml")
	if _, err := exec.LookPath("nvidia-ctk"); err == nil {
		l.output("nvidia-ctk", "cdi", "generate", "--output="+specification)
	} else {
		t.Log("nvidia-ctk is missing: the test writes the CDI specification")
		l.must(os.WriteFile(specification, l.nvidiaSpecification(smi, nodes), 0o600))
	}
	l.args = []string{"--devices", l.file("devices.yaml", fmt.Sprintf("devices: [{resource: nvidia.com/gpu, cdi: nvidia.com/gpu}]\ncdiDirs: [%s]\n", filepath.Dir(specification)))}
	l.write("plain.yaml", l.gpuPod("plain", smi, 0))
	l.write("gpu.yaml", l.gpuPod("gpu", smi, 1))
	l.start()
	now := l.untilReady("plain", "gpu")
	for name, want := range map[string]int{"plain": 0, "gpu": 1} {
		seen, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/dev/nvidia[0-9]*", l.pid(containerID(now[name], "c"))))
		if err != nil || len(seen) != want {
			t.Errorf("pod %s sees %q, %v; want %d", name, seen, err, want)
		}
	}
	inside := l.ask("exec", "gpu", "--", smi, "-L")
	t.Logf("the pod with a GPU has\n%s", inside)
	if seen := gpuLine.FindAllString(inside, -1); len(seen) != 1 || !slices.ContainsFunc(gpus, func(g string) bool { return uuid(g) == uuid(seen[0]) }) {
		t.Errorf("nvidia-smi lists %q in the pod, want one of %q", seen, gpus)
	}
	// Each GPU is offered once, whatever names the specification has for it.
	l.remove("gpu.yaml")
	l.untilGone("gpu")
	for n, want := range map[int]bool{len(gpus): true, len(gpus) + 1: false} {
		if got := fits(l, l.file("dry.yaml", l.gpuPod("dry", smi, n))); got != want {
			t.Errorf("a pod with %d GPUs fits: %v; want %v", n, got, want)
		}
	}
}

var gpuLine = regexp.MustCompile(`(?m)^GPU \d+: .*$`)

// uuid is that in a line of nvidia-smi -L.
func uuid(line string) string { return line[max(0, strings.Index(line, "(UUID")):] }

// output returns what a program of the machine prints.
func (l *lab) output(program string, args ...string) string {
	l.t.Helper()
	out, err := exec.CommandContext(l.t.Context(), program, args...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return string(out)
}

// sharedObject is a library in the output of ldd or ldconfig -p: its path is the last on the line.
var sharedObject = regexp.MustCompile(`(?m)^.*?(/\S+\.so\S*)(?: \(0x[0-9a-f]+\))?$`)

// gpuPod is the manifest of a pod with the libraries of the machine's C that nvidia-smi is linked to.
func (l *lab) gpuPod(name, smi string, gpus int) string {
	type object = map[string]any
	var volumes, mounts []object
	for i, m := range sharedObject.FindAllStringSubmatch(l.output("ldd", smi), -1) {
		volumes = append(volumes, object{"name": fmt.Sprint("l", i), "hostPath": object{"path": m[1], "type": "File"}})
		mounts = append(mounts, object{"name": fmt.Sprint("l", i), "mountPath": m[1], "readOnly": true})
	}
	container := object{"name": "c", "image": sampleimage.Testbox, "args": []string{"sleep", "forever"}, "volumeMounts": mounts}
	if gpus > 0 {
		container["resources"] = object{"limits": object{"nvidia.com/gpu": fmt.Sprint(gpus)}}
	}
	b, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name},
		"spec": object{"terminationGracePeriodSeconds": 1, "volumes": volumes, "containers": []object{container}},
	})
	l.must(err)
	return string(b)
}

// nvidiaSpecification is the least that nvidia-smi needs of a CDI specification.
func (l *lab) nvidiaSpecification(smi string, nodes []string) []byte {
	type object = map[string]any
	var devices, common []object
	for _, node := range nodes {
		devices = append(devices, object{
			"name": strings.TrimPrefix(node, "/dev/nvidia"), "containerEdits": object{"deviceNodes": []object{{"path": node}}},
		})
	}
	for _, node := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"} {
		if _, err := os.Stat(node); err == nil {
			common = append(common, object{"path": node})
		}
	}
	mounts := []object{{"hostPath": smi, "containerPath": smi, "options": []string{"ro", "nosuid", "nodev", "bind"}}}
	for line := range strings.Lines(l.output("ldconfig", "-p")) {
		m := sharedObject.FindStringSubmatch(strings.TrimSpace(line))
		if m != nil && slices.Contains([]string{"libnvidia-ml.so.1", "libcuda.so.1"}, filepath.Base(m[1])) {
			mounts = append(mounts, object{"hostPath": m[1], "containerPath": m[1], "options": []string{"ro", "nosuid", "nodev", "bind"}})
		}
	}
	b, err := json.Marshal(object{
		"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices,
		"containerEdits": object{"deviceNodes": common, "mounts": mounts},
	})
	l.must(err)
	return b
}
