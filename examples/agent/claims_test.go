package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
)

// claimData are volumes of this node and claims to them, as a person writes them.
// The last volume is another node's.
const claimData = `apiVersion: v1
kind: PersistentVolume
metadata: {name: dir}
spec:
  local: {path: %[1]s}
  claimRef: {namespace: default, name: data}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [lab]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {volumeName: dir}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: scratch}
spec: {local: {path: %[1]s/scratch}, claimRef: {namespace: default, name: p-lab-own}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: raw}
spec: {volumeMode: Block, local: {path: %[2]s}, claimRef: {namespace: default, name: raw}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: raw}
spec: {volumeMode: Block, volumeName: raw}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: share}
spec: {nfs: {server: nas.example, path: %[1]s}, mountOptions: [nosuid], claimRef: {namespace: default, name: share}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: share}
spec: {volumeName: share}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: far}
spec:
  local: {path: %[1]s}
  claimRef: {namespace: default, name: far}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [elsewhere]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: far}
spec: {volumeName: far}
`

// claimPod has a volume of each kind that needs a claim, and nfs with and without
// one.
func claimPod(dir string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: same, persistentVolumeClaim: {claimName: data, readOnly: true}}
  - {name: own, ephemeral: {volumeClaimTemplate: {spec: {volumeName: scratch, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}}
  - {name: raw, persistentVolumeClaim: {claimName: raw}}
  - {name: share, persistentVolumeClaim: {claimName: share}}
  - {name: inline, nfs: {server: nas.example, path: %[2]s, readOnly: true}}
  containers:
  - name: c
    image: '%[1]s'
    args: [write, /data/written, by the pod, write, /own/file, mine, sleep, forever]
    volumeMounts:
    - {name: data, mountPath: /data}
    - {name: own, mountPath: /own}
    - {name: share, mountPath: /share}
    - {name: inline, mountPath: /inline}
    volumeDevices: [{name: raw, devicePath: /dev/raw-disk}]
`, sampleimage.Testbox, dir)
}

// withNFS has the agent find a mount program that knows NFS servers: it binds
// what is said to be a server's directory. The options go into a file.
func (l *lab) withNFS() (options string) {
	l.t.Helper()
	real, err := exec.LookPath("mount")
	l.must(err)
	dir := l.t.TempDir()
	options = filepath.Join(dir, "options")
	script := fmt.Sprintf(`#!/bin/sh
[ "$1 $2" = "-t nfs" ] || exec %[1]s "$@"
shift 2
o=
if [ "$1" = -o ]; then o=$2; shift 2; fi
shift
case $1 in nas.example:*) ;; *) echo "no server $1" >&2; exit 32;; esac
echo "$o" >>%[2]s
%[1]s --bind "${1#nas.example:}" "$2" || exit
[ -z "$o" ] || exec %[1]s -o "remount,bind,$o" "$2"
`, real, options)
	l.must(os.WriteFile(filepath.Join(dir, "mount"), []byte(script), 0o700))
	l.env = append(l.env, "PATH="+dir+":"+os.Getenv("PATH"))
	return options
}

// loopDisk is a block device with a few words on it.
func (l *lab) loopDisk() string {
	l.t.Helper()
	image, content := filepath.Join(l.t.TempDir(), "image"), make([]byte, 1<<16)
	copy(content, "a disk's first words\n")
	l.must(os.WriteFile(image, content, 0o600))
	out, err := exec.Command("losetup", "--find", "--show", image).Output()
	if err != nil {
		l.t.Skip("no loop devices: ", err)
	}
	disk := strings.TrimSpace(string(out))
	l.t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", disk).CombinedOutput(); err != nil {
			l.t.Errorf("%v: %s", err, out)
		}
	})
	return disk
}

// Claims of manifests, ephemeral volumes, block devices and NFS, as seen inside.
func TestVolumesOfClaims(t *testing.T) {
	t.Parallel()
	containerdtest.Required(t)
	l := newLab(t)
	disk, options, host := l.loopDisk(), l.withNFS(), l.hostDir()
	l.must(os.Mkdir(filepath.Join(host, "scratch"), 0o755)) //nolint:gosec // containers of any user read it
	l.write("far.yaml", strings.Replace(strings.Replace(box("far", "sleep, forever"), "  containers:",
		"  volumes: [{name: x, persistentVolumeClaim: {claimName: far}}]\n  containers:", 1), "args:", "volumeMounts: [{name: x, mountPath: /x}], args:", 1))
	l.write("p.yaml", claimPod(host))
	l.start()

	// Without volumes a pod waits, and runs as soon as there are some.
	l.until("said why", func(map[string]*v1.Pod) bool {
		return strings.Contains(l.ask("why", "p"), "claim default/data: not found")
	})
	l.write("claims.yaml", fmt.Sprintf(claimData, host, disk))
	l.untilReady("p")
	read := func(file string) string { return l.ask("exec", "p", "--", "/testbox", "cat", file) }
	l.until("written", func(map[string]*v1.Pod) bool { return read("/own/file") == "mine" })
	for file, want := range map[string]string{
		"/data/file": "of the node", "/share/file": "of the node", "/inline/file": "of the node", "/inline/written": "by the pod",
	} {
		if got := strings.TrimSpace(read(file)); got != want {
			t.Errorf("%s has %q inside, want %q", file, got, want)
		}
	}
	if got := read("/dev/raw-disk"); !strings.HasPrefix(got, "a disk's first words\n") {
		t.Errorf("the disk has %.40q inside", got)
	}
	if b, err := os.ReadFile(filepath.Join(host, "scratch/file")); err != nil || string(b) != "mine" {
		t.Errorf("the ephemeral volume has %q (%v)", b, err)
	}
	if b, err := os.ReadFile(options); err != nil || !strings.Contains(string(b), "nosuid\n") || !strings.Contains(string(b), "ro\n") {
		t.Errorf("options of NFS mounts: %q (%v)", b, err)
	}
	held := filepath.Join(l.root, "plugins/kubernetes.io~local-volume/volumeDevices/raw")
	loops := func() string {
		out, err := exec.Command("losetup", "--list", "--noheadings", "--output", "BACK-FILE").Output()
		l.must(err)
		var ours []byte
		for line := range bytes.Lines(out) {
			if bytes.HasPrefix(line, []byte(held)) {
				ours = append(ours, line...)
			}
		}
		return string(ours)
	}
	if got := loops(); strings.Count(got, "\n") != 1 {
		t.Errorf("the disk is held by %q", got)
	}
	l.until("said why", func(map[string]*v1.Pod) bool {
		return strings.Contains(l.ask("why", "far"), "no term of its nodeAffinity matches node lab")
	})

	// What goes while no agent is there goes later, and takes nothing along.
	l.kill()
	l.remove("p.yaml")
	l.remove("far.yaml")
	l.start()
	l.untilGone("p", "far")
	l.until("removed", func(map[string]*v1.Pod) bool {
		_, err := os.Lstat(held)
		return os.IsNotExist(err) && len(l.entries(filepath.Join(l.root, "pods"))) == 0
	})
	if left, loops := l.mountsBelow(), loops(); len(left) > 0 || loops != "" {
		t.Errorf("still mounted: %v; held: %s", left, loops)
	}
	for _, file := range []string{"file", "written", "scratch/file"} {
		if _, err := os.Stat(filepath.Join(host, file)); err != nil {
			t.Errorf("the volume lost %v", err)
		}
	}
}
