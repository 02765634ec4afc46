//go:build kubelet

package e2e_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/kubeletconfig"
)

// newestTags is how many releases are upgraded from.
const newestTags = 3

var (
	upgradeFrom = flag.String("upgrade.from", "", "commit or tag whose agent is upgraded from; the last three tags")
	upgradeOver = flag.String("upgrade.over", "containerd,localcri", "runtimes, by comma")
)

// An agent of an earlier release is replaced by this one under pods of every kind, and the
// way back, and no container and no readiness changes.
func TestUpgrade(t *testing.T) {
	if _, child := runApart(t); !child {
		return
	}
	for _, from := range releases(t) {
		for _, over := range strings.Split(*upgradeOver, ",") {
			t.Run(from+" over "+over, func(t *testing.T) { upgrade(t, from, over) })
		}
	}
}

func upgrade(t *testing.T, from, over string) {
	old, current := earlierAgent(t, from), program(t, "agent")
	l := newCluster(t)
	l.config = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\nmaxParallelImagePulls: 2\n"
	u := &upgraded{cluster: l}
	if over == "localcri" {
		u.ownRuntime()
	}
	devices := u.devicePlugin("a", "b", "c")
	u.volumes()

	u.run(old)
	devices()
	u.make()
	u.await()
	for i, binary := range []string{current, old, current} {
		if i == 0 {
			u.kubectl("delete", "pod", "--wait=false", "ending-1", "ending-2")
			time.Sleep(2 * time.Second) // they have been told
		}
		before := u.facts()
		u.stopAgent()
		u.run(binary)
		devices()
		u.same(fmt.Sprintf("turn %d", i), before)
		u.known()
		u.quiet()
		if i == 0 {
			u.ended("ending-1", "ending-2")
		}
	}
	u.apply(strings.ReplaceAll(fmt.Sprintf(withResources, busybox, forever, "after", "after"), "cpu: 1, ", ""))
	l.ready(1, "era=after")
	u.kubectl("delete", "pod", "--all", "--timeout=3m")
	for _, name := range []string{"static-1", "static-2"} {
		l.must(os.Remove(filepath.Join(l.dir, "manifests", name+".yaml")))
	}
	l.until("nothing of the pods is left", func() error {
		left, err := os.ReadDir(filepath.Join(l.root(), "pods"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d directories are left", len(left))
		}
		return err
	})
	u.known()
	u.stopAgent()
	if over == "localcri" {
		if out, err := exec.Command(current, "reset", "--root-dir", l.root(), "--images").CombinedOutput(); err != nil {
			t.Errorf("reset: %v: %s", err, out)
		}
	}
}

// releases are what is upgraded from.
func releases(t *testing.T) []string {
	t.Helper()
	if *upgradeFrom != "" {
		return []string{*upgradeFrom}
	}
	out, err := exec.Command("git", "-C", "..", "tag", "--list", "v*", "--sort=-v:refname").Output()
	if err != nil {
		t.Fatalf("git tag: %v", err)
	}
	tags := strings.Fields(string(out))
	if len(tags) == 0 {
		t.Skip("there is no release to upgrade from; -upgrade.from names a commit")
	}
	return tags[:min(newestTags, len(tags))]
}

// earlierAgent builds the agent of a commit, with its monitor, and keeps it for the next
// run.
func earlierAgent(t *testing.T, commit string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "build", "upgrade", commit))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "agent")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	src, err := os.MkdirTemp("", "nwupgrade")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(src) }()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script := `git -C .. archive "$1" | tar -x -C "$2" && make -C "$2" build && cp "$2/build/bin/agent" "$3.part" && mv "$3.part" "$3"`
	if out, err := exec.Command("sh", "-c", script, "sh", commit, src, path).CombinedOutput(); err != nil {
		t.Fatalf("build the agent of %s: %v: %s", commit, err, tail(string(out), 20))
	}
	return path
}

// upgraded is a node whose agent is replaced.
type upgraded struct {
	*cluster
	flags   []string
	crashed int32  // restarts of the pod that crashes
	loop    string // a block device
}

// held is what must not change with the agent.
type held struct {
	uid, containers, ready, phase, inside string
}

// ownRuntime has the agent run the pods itself.
func (u *upgraded) ownRuntime() {
	u.must(os.Chmod(u.dir, 0o711)) // containers with users of their own pass through
	images := filepath.Join(u.dir, "images")
	u.must(os.MkdirAll(images, 0o755))
	f, err := os.Create(filepath.Join(images, "busybox.tar"))
	u.must(err)
	u.must(sampleimage.Write(f, busyboxImage(u.t)))
	u.must(f.Close())
	bin, err := filepath.Abs(filepath.Join("..", "build", "bin"))
	u.must(err)
	u.t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	u.endpoint = kubeletconfig.InProcess
	u.flags = []string{"--network", "bridge", "--preload-images", images}
	u.t.Cleanup(func() {
		u.killAgent()
		_ = exec.Command(program(u.t, "agent"), "reset", "--root-dir", u.root(), "--images").Run()
	})
}

// run has a program run the node, and returns when the node is ready by its word.
func (u *upgraded) run(binary string) {
	u.t.Helper()
	u.binary = binary
	kubeconfig, err := u.cp.Kubeconfig(u.node, "system:node:"+u.node, "system:nodes")
	u.must(err)
	began := time.Now().Truncate(time.Second)
	u.launch(append([]string{"--kubeconfig", kubeconfig}, u.flags...)...)
	u.until("the node is ready", func() error {
		var obj v1.Node
		if err := u.get("/api/v1/nodes/"+u.node, &obj); err != nil {
			return err
		}
		for _, c := range obj.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(began) {
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", obj.Status.Conditions)
	})
}

// devicePlugin offers devices for as long as the test runs; registered waits until the
// agent that runs now has them.
func (u *upgraded) devicePlugin(devices ...string) (registered func()) {
	dir, sockets := filepath.Join(u.dir, "devices"), filepath.Join(u.root(), "device-plugins")
	u.must(os.MkdirAll(sockets, 0o755))
	u.must(os.Mkdir(dir, 0o755))
	for _, d := range devices {
		u.must(os.WriteFile(filepath.Join(dir, d), nil, 0o600))
	}
	log := u.runs("examples/deviceplugin", "--devices", dir, "--sockets", sockets)
	times := 0
	return func() {
		u.t.Helper()
		times++
		u.until("the device plugin is registered", func() error {
			if got := strings.Count("\n"+log.String(), "\nregistered "); got < times {
				return fmt.Errorf("%d times, want %d: %s", got, times, log.String())
			}
			return nil
		})
	}
}

// runs builds the program of a package of the repository, runs it until the test ends, and returns its output.
func (u *upgraded) runs(pkg string, args ...string) *testprogram.Output {
	u.t.Helper()
	path := filepath.Join(u.dir, filepath.Base(pkg))
	build := exec.Command("go", "build", "-o", path, "github.com/nodewright/nodewright/"+pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		u.t.Fatalf("build %s: %v: %s", pkg, err, out)
	}
	log := &testprogram.Output{}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	u.must(cmd.Start())
	u.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if u.t.Failed() {
			u.t.Logf("%s said:\n%s", pkg, tail(log.String(), 20))
		}
	})
	return log
}

// volumes makes what volumes are made of.
func (u *upgraded) volumes() {
	u.must(os.MkdirAll(filepath.Join(u.dir, "host"), 0o777))
	u.must(os.Chmod(filepath.Join(u.dir, "host"), 0o777))
	u.must(os.MkdirAll(filepath.Join(u.dir, "local"), 0o755))
	u.must(os.MkdirAll(filepath.Join(u.dir, "own"), 0o755))
	registry, sockets := filepath.Join(u.root(), "plugins_registry"), filepath.Join(u.root(), "plugins")
	u.runs("e2e/csidriver", "--node", u.node, "--state", filepath.Join(u.dir, "disks"), "--registry", registry, "--dir", sockets)
	cdi := filepath.Join(u.c.Dir, "cdi")
	if u.endpoint != "" {
		cdi = "/var/run/cdi" // where localcri looks
	}
	u.runs("examples/dradriver", "--registry", registry, "--dir", sockets, "--cdi", cdi)
	u.server()
	u.disk()
}

// server has the agents find a program mount that knows an NFS server, which is a directory
// of the machine: the kernels of test machines have no NFS.
func (u *upgraded) server() {
	real, err := exec.LookPath("mount")
	u.must(err)
	bin := filepath.Join(u.dir, "bin")
	u.must(os.MkdirAll(filepath.Join(u.dir, "share"), 0o777))
	u.must(os.MkdirAll(bin, 0o755))
	script := fmt.Sprintf(`#!/bin/sh
[ "$1 $2" = "-t nfs" ] || exec %[1]s "$@"
shift 2
[ "$1" != -o ] || shift 2
[ "$1" != -- ] || shift
exec %[1]s --bind "${1#nas.example:}" "$2"
`, real)
	u.must(os.WriteFile(filepath.Join(bin, "mount"), []byte(script), 0o700))
	u.t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// disk makes a block device with a word on it.
func (u *upgraded) disk() {
	image, content := filepath.Join(u.dir, "image"), make([]byte, 1<<16)
	copy(content, "first words\n")
	u.must(os.WriteFile(image, content, 0o600))
	out, err := exec.Command("losetup", "--find", "--show", image).Output()
	u.must(err)
	u.loop = strings.TrimSpace(string(out))
	u.t.Cleanup(func() {
		u.killAgent()
		if out, err := exec.Command("losetup", "--detach", u.loop).CombinedOutput(); err != nil {
			u.t.Errorf("%v: %s", err, out)
		}
	})
}

// kinds are the pods of an upgrade. In them, %IMAGE, %FOREVER, %DIR, %NODE and %LOOP stand for
// the image, a command that ends when it is told to, a directory of the machine, the node, and
// a block device.
const kinds = `
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {key: one}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {key: two}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: local}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  local: {path: %DIR/local}
  claimRef: {namespace: default, name: local}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%NODE]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: local}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: local, resources: {requests: {storage: 1Gi}}}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: disk.example.com}
spec: {attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  claimRef: {namespace: default, name: disk}
  csi: {driver: disk.example.com, volumeHandle: disk, volumeAttributes: {create: directory, size: 16Mi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: disk, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: volumes}
spec:
  terminationGracePeriodSeconds: 2
  securityContext: {fsGroup: 1234}
  volumes:
  - {name: conf, configMap: {name: conf}}
  - {name: hidden, secret: {secretName: hidden}}
  - {name: all, projected: {sources: [{configMap: {name: conf}}, {serviceAccountToken: {path: token, expirationSeconds: 3600}}, {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}}
  - {name: down, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
  - {name: scratch, emptyDir: {sizeLimit: 16Mi}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: host, hostPath: {path: %DIR/host}}
  - {name: image, image: {reference: %IMAGE, pullPolicy: Never}}
  - {name: local, persistentVolumeClaim: {claimName: local}}
  - {name: disk, persistentVolumeClaim: {claimName: disk}}
  containers:
  - name: main
    image: %IMAGE
    imagePullPolicy: Never
    command: [sh, -c, "echo kept >/scratch/file; echo kept >/memory/file; echo kept >/local/file; echo kept >/disk/file; %FOREVER"]
    volumeMounts:
    - {name: conf, mountPath: /conf}
    - {name: hidden, mountPath: /hidden}
    - {name: all, mountPath: /all}
    - {name: down, mountPath: /down}
    - {name: scratch, mountPath: /scratch}
    - {name: scratch, mountPath: /part, subPath: part}
    - {name: memory, mountPath: /memory}
    - {name: host, mountPath: /host}
    - {name: local, mountPath: /local}
    - {name: image, mountPath: /image}
    - {name: disk, mountPath: /disk}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: raw}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  volumeMode: Block
  local: {path: %LOOP}
  claimRef: {namespace: default, name: raw}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%NODE]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: raw}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeMode: Block, volumeName: raw, resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: own}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  local: {path: %DIR/own}
  claimRef: {namespace: default, name: claims-own}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%NODE]}]}]}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpus}
spec: {driver: gpu.example.com, nodeName: %NODE, pool: {name: %NODE, generation: 1, resourceSliceCount: 1}, devices: [{name: null0}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.example.com}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: claims}
spec:
  terminationGracePeriodSeconds: 2
  resourceClaims: [{name: gpu, resourceClaimName: gpu}]
  volumes:
  - {name: raw, persistentVolumeClaim: {claimName: raw}}
  - {name: own, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: "", volumeName: own, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}}
  - {name: inline, csi: {driver: disk.example.com, volumeAttributes: {kind: directory, size: 16Mi}}}
  - {name: share, nfs: {server: nas.example, path: %DIR/share}}
  containers:
  - name: main
    image: %IMAGE
    imagePullPolicy: Never
    command: [sh, -c, "echo kept >/own/file; echo kept >/inline/file; echo kept >/share/file; %FOREVER"]
    volumeMounts: [{name: own, mountPath: /own}, {name: inline, mountPath: /inline}, {name: share, mountPath: /share}]
    volumeDevices: [{name: raw, devicePath: /dev/raw-disk}]
    resources: {claims: [{name: gpu}]}
---
apiVersion: v1
kind: Pod
metadata: {name: crashes}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "exit 3"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: done}
spec:
  restartPolicy: Never
  containers: [{name: main, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "echo why >/dev/termination-log"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: failed}
spec:
  restartPolicy: Never
  containers: [{name: main, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "exit 7"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: unready}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "%FOREVER"], readinessProbe: {exec: {command: ["false"]}, periodSeconds: 1}}]
---
apiVersion: v1
kind: Pod
metadata: {name: absent}
spec:
  containers: [{name: main, image: "localhost/absent:1", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Pod
metadata: {name: resized}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "%FOREVER"], resources: {requests: {memory: 32Mi, cpu: 20m}, limits: {memory: 64Mi}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: again}
spec:
  terminationGracePeriodSeconds: 2
  volumes: [{name: scratch, emptyDir: {}}]
  containers:
  - {name: main, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "[ -e /scratch/file ] || { touch /scratch/file; exit 3; }; %FOREVER"], volumeMounts: [{name: scratch, mountPath: /scratch}]}
---
apiVersion: v1
kind: Pod
metadata: {name: mapped}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "%FOREVER"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: host}
spec:
  hostNetwork: true
  hostPID: true
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "%FOREVER"]}]
`

// several are kinds of which there are more; %NAME is the pod's.
var several = map[string]int{plainKind: 7, probedKind: 4, besideKind: 3, ownKind: 2, endingKind: 2}

const (
	plainKind = `
apiVersion: v1
kind: Pod
metadata: {name: plain-%N}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "%FOREVER"]}, {name: second, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "%FOREVER"]}]
`
	probedKind = `
apiVersion: v1
kind: Pod
metadata: {name: probed-%N}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: %IMAGE
    imagePullPolicy: Never
    command: [sh, -c, "httpd -p 8080 -h /bin; %FOREVER"]
    startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 60}
    readinessProbe: {httpGet: {path: /sh, port: 8080}, periodSeconds: 1, timeoutSeconds: 5}
    livenessProbe: {exec: {command: ["true"]}, periodSeconds: 2, timeoutSeconds: 10}
`
	besideKind = `
apiVersion: v1
kind: Pod
metadata: {name: beside-%N}
spec:
  terminationGracePeriodSeconds: 2
  initContainers:
  - {name: prepare, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "true"]}
  - {name: beside, image: %IMAGE, imagePullPolicy: Never, restartPolicy: Always, command: [sh, -c, "%FOREVER"], readinessProbe: {exec: {command: ["true"]}, periodSeconds: 2, timeoutSeconds: 10}}
  containers: [{name: main, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "%FOREVER"], lifecycle: {postStart: {exec: {command: ["true"]}}, preStop: {exec: {command: ["true"]}}}}]
`
	ownKind = `
apiVersion: v1
kind: Pod
metadata: {name: own-%N}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "%FOREVER"], resources: {limits: {%CPUmemory: 64Mi, example.com/thing: 1}}}]
`
	endingKind = `
apiVersion: v1
kind: Pod
metadata: {name: ending-%N}
spec:
  terminationGracePeriodSeconds: 300
  volumes: [{name: host, hostPath: {path: %DIR/host}}]
  containers:
  - {name: main, image: %IMAGE, imagePullPolicy: Never, command: [sh, -c, "trap 'sleep 20; touch /host/ending-%N; exit 0' TERM; while :; do sleep 1000 & wait $!; done"], volumeMounts: [{name: host, mountPath: /host}]}
`
)

// kept are pods whose containers, readiness and phase are compared; of crashes and of
// those that end it is more, or nothing.
var kept []string

func (u *upgraded) text(s string) string {
	return strings.NewReplacer("%IMAGE", busybox, "%FOREVER", forever, "%DIR", u.dir, "%NODE", u.node, "%LOOP", u.loop).Replace(s)
}

// make makes the pods.
func (u *upgraded) make() {
	list := kinds
	kept = []string{"volumes", "claims", "done", "failed", "unready", "absent", "resized", "again", "host", "mapped"}
	for kind, n := range several {
		for i := range n {
			text := strings.NewReplacer("%N", fmt.Sprint(i+1), "%CPU", ownCPU(i+1)).Replace(kind) // of the first CPU, the resized pod has a part
			list += "---" + text
			name := regexp.MustCompile(`name: ([a-z]+-\d)\}`).FindStringSubmatch(text)[1]
			if !strings.HasPrefix(name, "ending") {
				kept = append(kept, name)
			}
		}
	}
	slices.Sort(kept)
	u.apply(u.text(list))
	for _, name := range []string{"static-1", "static-2"} {
		u.must(os.WriteFile(filepath.Join(u.dir, "manifests", name+".yaml"), []byte(pod(name, forever)), 0o600))
		kept = append(kept, name+"-"+u.node)
	}
}

// await waits until all pods are as they are to be.
func (u *upgraded) await() {
	u.t.Helper()
	as := func(p *v1.Pod) error {
		c := p.Status.ContainerStatuses
		ok := isReady(p)
		switch p.Name {
		case "crashes":
			ok = len(c) > 0 && c[0].RestartCount >= 1
		case "done":
			ok = p.Status.Phase == v1.PodSucceeded
		case "failed":
			ok = p.Status.Phase == v1.PodFailed
		case "unready":
			ok = len(c) > 0 && c[0].State.Running != nil
		case "absent":
			ok = len(c) > 0 && c[0].State.Waiting != nil && c[0].State.Waiting.Reason == "ErrImageNeverPull"
		case "again":
			ok = ok && c[0].RestartCount == 1
		}
		if !ok {
			return fmt.Errorf("%s: %+v", p.Name, p.Status)
		}
		return nil
	}
	all := func() error {
		pods, err := u.pods("")
		if err != nil {
			return err
		}
		var errs []error
		for _, name := range append(slices.Clone(kept), "crashes", "ending-1", "ending-2") {
			if pods[name] == nil {
				errs = append(errs, fmt.Errorf("%s is not there", name))
				continue
			}
			errs = append(errs, as(pods[name]))
		}
		return errors.Join(errs...)
	}
	u.until("the pods are ready", all)
	u.kubectl("patch", "pod", "resized", "--subresource=resize", "--patch", `{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "30m"}}}]}}`)
	u.until("the pod is resized", func() error {
		pods, err := u.pods("")
		if err != nil {
			return err
		}
		if got := pods["resized"].Status.ContainerStatuses[0].AllocatedResources.Cpu().String(); got != "30m" {
			return fmt.Errorf("allocated: %s", got)
		}
		return nil
	})
}

// facts are what pods are and have.
func (u *upgraded) facts() map[string]held {
	u.t.Helper()
	pods, err := u.pods("")
	u.must(err)
	out := map[string]held{}
	for _, name := range kept {
		p := pods[name]
		if p == nil {
			out[name] = held{}
			continue
		}
		h := held{uid: string(p.UID), phase: string(p.Status.Phase)}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			h.containers += fmt.Sprintf("%s %s restarts=%d ready=%t; ", c.Name, c.ContainerID, c.RestartCount, c.Ready)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodReady || c.Type == v1.ContainersReady {
				h.ready += fmt.Sprintf("%s=%s since %s; ", c.Type, c.Status, c.LastTransitionTime.UTC().Format(time.TimeOnly))
			}
		}
		switch {
		case strings.HasPrefix(name, "own-"):
			h.inside = u.inside(name, "grep Cpus_allowed_list /proc/self/status; echo $DEVICES")
		case name == "volumes":
			h.inside = u.inside(name, "cat /scratch/file /memory/file /local/file /disk/file /conf/key /hidden/key /down/name /all/key; ls /host /part; [ -s /all/token ] && echo token; [ -x /image/bin/busybox ] && echo image; id -G")
		case name == "claims":
			h.inside = u.inside(name, "cat /own/file /inline/file /share/file; head -n 1 /dev/raw-disk; cat /dev/dra/gpu; env | grep DRA_CLAIM")
		case name == "mapped":
			h.inside = u.inside(name, "cat /proc/self/uid_map")
		case name == "resized":
			h.inside = p.Status.ContainerStatuses[0].AllocatedResources.Cpu().String()
		}
		out[name] = h
	}
	return out
}

// inside is what a script prints in a container.
func (u *upgraded) inside(pod, script string) (out string) {
	u.t.Helper()
	u.until("exec in "+pod, func() (err error) {
		out, err = u.try("exec", "-c", "main", pod, "--", "sh", "-c", script)
		return err
	})
	return strings.TrimSpace(out)
}

// same compares what pods are and have with what they had before: now, and once more
// when every pod has been looked at.
func (u *upgraded) same(when string, before map[string]held) {
	u.t.Helper()
	for range 2 {
		u.crashes()
		now := u.facts()
		changed := 0
		for name, was := range before {
			is := now[name]
			if name == "volumes" { // what ends meanwhile leaves its files in the host's directory
				was.inside, is.inside = strings.NewReplacer("ending-1\n", "", "ending-2\n", "").Replace(was.inside), strings.NewReplacer("ending-1\n", "", "ending-2\n", "").Replace(is.inside)
			}
			if is != was {
				changed++
				u.t.Errorf("%s: %s has changed:\n%+v\n%+v", when, name, was, is)
			}
		}
		u.t.Logf("%s: %d pods, %d of them changed", when, len(before), changed)
		time.Sleep(5 * time.Second)
	}
}

// crashes wants that the restarts of a pod that crashes are counted on, and that it is
// held back as before: two agents at most restart it once each in the time between two looks.
func (u *upgraded) crashes() {
	u.t.Helper()
	pods, err := u.pods("")
	u.must(err)
	c := pods["crashes"].Status.ContainerStatuses
	if len(c) == 0 || c[0].RestartCount < u.crashed || u.crashed > 0 && c[0].RestartCount > u.crashed+2 {
		u.t.Errorf("crashes: %d restarts before, now %+v", u.crashed, c)
		return
	}
	u.crashed = c[0].RestartCount
}

// ended waits until pods are gone, whose containers were given the time that they took.
func (u *upgraded) ended(names ...string) {
	u.t.Helper()
	for _, name := range names {
		u.until(name+" is gone", func() error {
			var p v1.Pod
			if err := u.get("/api/v1/namespaces/default/pods/"+name, &p); err == nil {
				return fmt.Errorf("it is there: %+v", p.Status)
			}
			return nil
		})
		if _, err := os.Stat(filepath.Join(u.dir, "host", name)); err != nil {
			u.t.Errorf("%s was not left to end by itself: %v", name, err)
		}
	}
}

// known wants that every file below the node's root directory is one of the table in
// docs/reference/formats.md, and none was set aside.
func (u *upgraded) known() {
	u.t.Helper()
	table, err := formats("../docs/reference/formats.md")
	u.must(err)
	unknown := map[string]int{}
	u.must(filepath.WalkDir(u.root(), func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(u.root(), path)
		if err != nil {
			return nil //nolint:nilerr // what vanishes meanwhile is of no interest
		}
		if d.IsDir() && (strings.Contains(rel, "/volumes/") || strings.Contains(rel, "/rootfs") || d.Name() == "globalmount") {
			return fs.SkipDir // what is mounted is somebody else's
		}
		if !d.Type().IsRegular() {
			return nil
		}
		if !slices.ContainsFunc(table, func(p *regexp.Regexp) bool { return p.MatchString(rel) }) {
			unknown[regexp.MustCompile(`[0-9a-f]{8,}|[0-9a-f-]{36}`).ReplaceAllString(rel, "*")]++
		}
		return nil
	}))
	for path, n := range unknown {
		u.t.Errorf("docs/reference/formats.md does not have %s (%d files)", path, n)
	}
}

// formats are the patterns of the first column of a table, where * stands for any part of a name,
// and ** for any path.
func formats(path string) ([]*regexp.Regexp, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []*regexp.Regexp
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		for _, p := range regexp.MustCompile("`[^`]+`").FindAllString(cells[1], -1) {
			q := regexp.QuoteMeta(strings.Trim(p, "`"))
			q = strings.ReplaceAll(strings.ReplaceAll(q, `\*\*`, ".+"), `\*`, "[^/]+")
			out = append(out, regexp.MustCompile("^"+q+"$"))
		}
	}
	return out, nil
}

// quiet wants that the agent has not complained of what it found.
func (u *upgraded) quiet() {
	u.t.Helper()
	for line := range strings.Lines(u.log.String()) {
		if regexp.MustCompile(`damaged|set aside|corrupt|unknown version`).MatchString(line) {
			u.t.Errorf("the agent says: %s", line)
		}
	}
}
