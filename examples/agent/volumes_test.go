package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

// volumePod is a pod with every volume that a node can make alone. Its
// containers look at them, and stay.
func volumePod(name, host string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {tier: web}, annotations: {note: first}}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 4242}
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: host, hostPath: {path: %[2]s, type: Directory}}
  - {name: config, configMap: {name: cm, defaultMode: 0444, items: [{key: color, path: deep/color}, {key: size, path: size, mode: 0400}]}}
  - {name: all, configMap: {name: cm}}
  - {name: secret, secret: {secretName: s, optional: true}}
  - {name: none, secret: {secretName: missing, optional: true}}
  - {name: down, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: cpu, resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: 1m}}]}}
  - {name: mixed, projected: {sources: [{configMap: {name: cm, items: [{key: color, path: a}]}}, {secret: {name: s, items: [{key: password, path: b}]}}, {downwardAPI: {items: [{path: c, fieldRef: {fieldPath: metadata.name}}]}}]}}
  - {name: picture, image: {reference: '%[3]s'}}
  initContainers:
  - name: i
    image: '%[3]s'
    args: [write, /disk/file, on disk, write, /memory/file, in memory, write, /part/x, a part]
    volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}, {name: disk, mountPath: /part, subPath: deep/part}]
  containers:
  - name: c
    image: '%[3]s'
    args: [cat, /disk/file, out, "", cat, /memory/file, out, "", cat, /disk/deep/part/x, out, "", cat, /host/file, cat, /config/deep/color, out, "", cat, /config/size, out, "",
      ls, /all, cat, /secret/password, out, "", ls, /none, cat, /down/labels, out, "", cat, /down/cpu, out, "", cat, /mixed/a, out, "", cat, /mixed/b, out, "", cat, /mixed/c, out, "",
      cat, /one, out, "", ls, /picture, out, looked, sleep, forever]
    resources: {requests: {cpu: 1m, memory: 1Mi}, limits: {cpu: 250m, memory: 32Mi}}
    volumeMounts:
    - {name: disk, mountPath: /disk}
    - {name: memory, mountPath: /memory}
    - {name: host, mountPath: /host, readOnly: true}
    - {name: config, mountPath: /config}
    - {name: all, mountPath: /all}
    - {name: secret, mountPath: /secret}
    - {name: none, mountPath: /none}
    - {name: down, mountPath: /down}
    - {name: mixed, mountPath: /mixed}
    - {name: picture, mountPath: /picture}
    - {name: all, mountPath: /one, subPath: color}
`, name, host, sampleimage.Testbox)
}

const volumeData = `apiVersion: v1
kind: ConfigMap
metadata: {name: cm}
data: {color: %s, size: large}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {password: hunter2}
`

// hostDir is a directory of the node that pods look at.
func (l *lab) hostDir() string {
	dir := l.t.TempDir()
	l.must(os.WriteFile(filepath.Join(dir, "file"), []byte("of the node\n"), 0o644))
	l.must(os.Chmod(dir, 0o755)) //nolint:gosec // containers of any user read it
	return dir
}

// mountsBelow counts what is mounted below the agent's directory.
func (l *lab) mountsBelow() (found []string) {
	l.t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	l.must(err)
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], l.root+"/") {
			found = append(found, f[4])
		}
	}
	return found
}

// Every kind of volume is there inside, follows its source, and goes.
func TestVolumes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	host := l.hostDir()
	l.write("data.yaml", fmt.Sprintf(volumeData, "blue"))
	l.write("v.yaml", volumePod("v", host))
	l.write("late.yaml", strings.Replace(strings.Replace(box("late", "cat, /x/key, out, '', sleep, forever"), "  containers:",
		"  volumes: [{name: x, configMap: {name: late}}]\n  containers:", 1), "args:", "volumeMounts: [{name: x, mountPath: /x}], args:", 1))
	l.start()
	l.untilReady("v")
	want := []string{
		"on disk", "in memory", "a part", "of the node", "blue", "large", "color", "size", "hunter2", `tier="web"`, "250",
		"blue", "hunter2", "v-lab", "blue", "testbox", "looked",
	}
	l.until("looked", func(map[string]*v1.Pod) bool { return strings.Contains(l.ask("logs", "v", "-c", "c"), "looked") })
	lines := strings.Split(l.ask("logs", "v", "-c", "c"), "\n")
	for _, w := range want {
		i := slices.Index(lines, w)
		if i < 0 {
			t.Fatalf("no line %q in what is left of the log: %q", w, lines)
		}
		lines = lines[i+1:]
	}

	// A volume that lacks its source says so, and is there as soon as that is.
	l.until("said why", func(map[string]*v1.Pod) bool {
		why := l.ask("why", "late")
		return strings.Contains(why, "late") && strings.Contains(why, `volume x`) && strings.Contains(why, "not found")
	})
	l.write("late-data.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: late}\ndata: {key: value}\n")
	l.untilReady("late")

	// What changes is seen inside; a part that was mounted stays as it was.
	changed := time.Now()
	l.write("data.yaml", fmt.Sprintf(volumeData, "green"))
	l.until("seen", func(map[string]*v1.Pod) bool { // one volume after the other
		return l.ask("exec", "v", "--", "/testbox", "cat", "/all/color", "cat", "/mixed/a", "cat", "/config/deep/color") == "greengreengreen"
	})
	t.Logf("a change of a ConfigMap was seen inside after %v", time.Since(changed).Round(time.Millisecond))
	if got := l.ask("exec", "v", "--", "/testbox", "cat", "/one"); got != "blue" {
		t.Errorf("after the change the container reads %q", got)
	}

	// A restart of the agent disturbs nothing; what goes meanwhile goes later.
	before := ids(l.containers())
	l.kill()
	l.start()
	l.untilReady("v", "late")
	if now := ids(l.containers()); !slices.Equal(now, before) {
		t.Error("containers changed over a restart of the agent")
	}
	l.kill()
	l.remove("v.yaml")
	l.remove("late.yaml")
	l.start()
	l.untilGone("v", "late")
	l.until("removed", func(map[string]*v1.Pod) bool { return len(l.entries(filepath.Join(l.root, "pods"))) == 0 })
	if left := l.mountsBelow(); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	if b, err := os.ReadFile(filepath.Join(host, "file")); err != nil || string(b) != "of the node\n" {
		t.Errorf("the node's file has %q, %v", b, err)
	}
}

// An agent killed at any moment of mounting and unmounting leaves nothing and
// takes nothing.
func TestVolumesOutliveTheAgent(t *testing.T) {
	long(t)
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	l := newLab(t)
	host := l.hostDir()
	l.write("data.yaml", fmt.Sprintf(volumeData, "blue"))
	const pods = 20
	kill := func(n int) {
		for range n {
			l.launch()
			time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond) // the random moment
			l.kill()
		}
	}
	var names []string
	for i := range pods {
		names = append(names, fmt.Sprintf("v%02d", i))
		l.write(names[i]+".yaml", volumePod(names[i], host))
	}
	kill(*deaths / 2)
	l.start()
	l.untilReady(names...)
	for _, n := range names {
		l.remove(n + ".yaml")
	}
	l.kill()
	kill(*deaths / 2)
	l.start()
	l.untilGone(names...)
	l.until("removed", func(map[string]*v1.Pod) bool { return len(l.entries(filepath.Join(l.root, "pods"))) == 0 })
	if left := l.mountsBelow(); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	if b, err := os.ReadFile(filepath.Join(host, "file")); err != nil || string(b) != "of the node\n" {
		t.Errorf("the node's file has %q, %v", b, err)
	}
}
