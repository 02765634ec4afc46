package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
)

const csiImage = "localhost/csidriver:1"

// manifests of a node without a cluster: the driver is a pod, and a volume that
// nobody creates is made by it. They want: the agent's root, the driver's state,
// its image, the tests' image.
const standaloneManifests = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: scratch}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  claimRef: {namespace: default, name: scratch}
  csi: {driver: disk.example.com, volumeHandle: scratch, volumeAttributes: {create: directory, size: 16Mi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: scratch, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  volumeName: scratch
  resources: {requests: {storage: 16Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: csidriver, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %[3]s
    imagePullPolicy: Never
    args: [--node, n1, --state, %[2]s, --registry, %[1]s/plugins_registry, --dir, %[1]s/plugins]
    securityContext: {privileged: true}
    volumeMounts:
    - {name: root, mountPath: %[1]s, mountPropagation: Bidirectional}
    - {name: state, mountPath: %[2]s}
  volumes:
  - {name: root, hostPath: {path: %[1]s}}
  - {name: state, hostPath: {path: %[2]s, type: DirectoryOrCreate}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %[4]s
    imagePullPolicy: Never
    command: [sh, -c, "echo written >/data/file; trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: scratch}}
`

// A node without a cluster has a CSI driver as a pod, and a pod with a volume of
// it: it is written to, and outlives the pod, the agent and the driver.
func TestStandaloneCSI(t *testing.T) {
	agent := program(t, "agent")
	rt := containerdtest.New(t, containerdtest.Options{})
	importBusybox(t, rt)
	top, err := os.MkdirTemp("", "nwcsi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	// The driver's mounts reach the node, as on one where systemd shares them all.
	if err := unix.Mount(top, top, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(top, unix.MNT_DETACH) })
	if err := unix.Mount("", top, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(top, "csidriver")
	if err := testprogram.Compile(t.Context(), ".", binary, "./csidriver"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	importImage(t, rt, sampleimage.Image{
		Name: csiImage, Architecture: runtime.GOARCH, Entrypoint: []string{"/csidriver"},
		Files: []sampleimage.File{{Path: "/csidriver", Mode: 0o755, Data: data}, {Path: "/tmp/", Mode: 0o1777}},
	})
	root, state, manifests := filepath.Join(top, "agent"), filepath.Join(top, "state"), filepath.Join(top, "manifests")
	for _, dir := range []string{root, state, manifests} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_ = containerdtest.UnmountBelow(root)
		_ = containerdtest.UnlinkLogs(top)
	})
	config := filepath.Join(top, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
staticPodPath: %s
podLogsDir: %s
port: %d
readOnlyPort: 0
healthzPort: 0
evictionHard: {}
imageGCHighThresholdPercent: 100
`, manifests, filepath.Join(top, "logs"), testprogram.Port(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, m := range strings.Split(fmt.Sprintf(standaloneManifests, root, state, csiImage, busybox), "---\n") {
		if err := os.WriteFile(filepath.Join(manifests, fmt.Sprintf("%d.yaml", i)), []byte(m), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log testprogram.Output
	start := func() (stop func()) {
		cmd := exec.Command(agent, "run", "--leave-host", "--config", config, "--root-dir", root, "--hostname-override", "n1", "--container-runtime-endpoint", "unix://"+rt.Socket)
		cmd.Stdout, cmd.Stderr = &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	until := func(what string, ask func() bool) {
		t.Helper()
		for end := time.Now().Add(testTimeout); !ask(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: not within %v; the agent said last:\n%s", what, testTimeout, tail(log.String(), 60))
			}
		}
	}
	file := filepath.Join(state, "data", "scratch", "file")
	written := func() bool {
		b, err := os.ReadFile(file)
		return err == nil && string(b) == "written\n"
	}
	stop := start()
	defer func() { stop() }()
	until("the pod has written", written)

	// Killed, it finds the volume again; without its pod the volume is unmounted, and
	// what was written stays.
	stop()
	writer := filepath.Join(manifests, "3.yaml")
	if err := os.Remove(writer); err != nil {
		t.Fatal(err)
	}
	stop = start()
	until("the volume is unmounted", func() bool {
		table, err := os.ReadFile("/proc/self/mountinfo")
		return err == nil && !strings.Contains(string(table), root+"/plugins/kubernetes.io/csi") && !strings.Contains(string(table), "kubernetes.io~csi")
	})
	if !written() {
		t.Error("what the pod has written is gone")
	}
}
