//go:build !race && linux

package hostile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/localcri"
)

// newOwnMachine is a machine whose agent runs containers itself, with runc.
func newOwnMachine(t *testing.T) *machine {
	if os.Geteuid() != 0 {
		t.Skip("runs containers: needs root")
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(repository, "build", "bin")+":"+os.Getenv("PATH"))
	if _, err := exec.LookPath("runc"); err != nil {
		testprogram.Missing(t, "needs runc: make tools")
	}
	archives, err := sampleimage.Build(t.Context(), repository, filepath.Join(repository, "build", "images"))
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	m.must(os.Chmod(m.dir, 0o711)) //nolint:gosec // the root of a user namespace passes through
	m.args = []string{"--container-runtime-endpoint", "localcri", "--network", "none", "--preload-images", filepath.Dir(archives[0])}
	t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
		if err := localcri.Reset(context.Background(), localcri.InProcessConfig{RootDir: m.path("root", "localcri"), Log: zaptest.NewLogger(t)}, localcri.ResetOptions{Images: true}); err != nil {
			t.Errorf("reset: %v", err)
		}
	})
	return m
}

// runtimeState is the directory of the runtime's state.
func (m *machine) runtimeState() string {
	sum := sha256.Sum256([]byte(m.path("root", "localcri")))
	return "/run/nodewright-" + hex.EncodeToString(sum[:4])
}

// untilPodsRun waits until at least so many pods run.
func (m *machine) untilPodsRun(n int) (pods []v1.Pod) {
	m.t.Helper()
	m.until(fmt.Sprintf("%d pods run", n), func() bool {
		list, err := m.api.Pods(context.Background())
		if err != nil {
			return false
		}
		pods = list.Items
		running := 0
		for i := range pods {
			if c := pods[i].Status.ContainerStatuses; len(c) > 0 && c[0].State.Running != nil {
				running++
			}
		}
		return running >= n
	})
	return pods
}

// An account is a user of the machine: its IDs, and no groups.
type account struct{ uid, gid int }

// as calls f as an account, as far as files and sockets are concerned.
func (a account) as(f func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()                                                      // and never unlocked: the thread ends with the goroutine
		set := func(call, id uintptr) { _, _, _ = unix.RawSyscall(call, id, 0, 0) } // they return the former ID
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
			done <- errno
			return
		}
		// The kernel takes root's rights over files away with the first of these.
		set(unix.SYS_SETFSGID, uintptr(a.gid))
		set(unix.SYS_SETFSUID, uintptr(a.uid))
		if now, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ^uintptr(0), 0, 0); int(now) != a.uid {
			done <- errors.New("the thread is still root")
			return
		}
		f()
		done <- nil
	}()
	return <-done
}

// opens returns what an account can do with a file; "" is nothing.
func opens(path string, kind fs.FileMode) string {
	switch {
	case kind.IsDir():
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd)
			return "lists it"
		}
		at := filepath.Join(path, ".account")
		if fd, err = unix.Open(at, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600); err == nil {
			_ = unix.Close(fd)
			_ = unix.Unlink(at)
			return "makes files in it"
		}
	case kind.IsRegular():
		for flag, what := range map[int]string{unix.O_RDONLY: "reads it", unix.O_WRONLY: "writes it"} {
			if fd, err := unix.Open(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
				_ = unix.Close(fd)
				return what
			}
		}
	case kind&fs.ModeSocket != 0:
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = unix.Close(fd) }()
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		if err == nil || errors.Is(err, unix.EAGAIN) {
			return "connects to it"
		}
	}
	return ""
}

// everything lists what there is below directories and at mount points below them, for
// root, without the content of root file systems and of the kernel's own.
func everything(t *testing.T, dirs ...string) map[string]fs.FileMode {
	t.Helper()
	found := map[string]fs.FileMode{}
	add := func(top string) {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // it has gone meanwhile
			}
			found[path] = d.Type()
			base := filepath.Base(path)
			if d.IsDir() && (base == "sys" || base == "layers" || filepath.Base(filepath.Dir(path)) == "rootfs") {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range dirs {
		add(d)
	}
	return found
}

// accountsMay reports what other accounts may open: what programs that collect logs list,
// as with the kubelet, where plugins register, and the program of shared PID namespaces,
// which is the same for all and holds nothing of a pod.
func (m *machine) accountsMay(path string) bool {
	rel, err := filepath.Rel(m.dir, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return false
	}
	parts := strings.Split(rel, "/")
	return parts[0] == "logs" || rel == "root/plugins_registry" || strings.HasPrefix(rel, "root/localcri/pods/pause/")
}

// What the agent, its runtime and its pods have of files, directories, sockets and mounts
// opens for no other account of the machine, nor for an ID that the container of a pod
// has: but for the own root of a pod whose root that is.
func TestAccountsReachNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short: runs containers")
	}
	m := newOwnMachine(t)
	m.args = append(m.args, "--local-api", "127.0.0.1:0")
	m.write("manifests/pods.yaml", accountPods)
	m.start()
	var pods []v1.Pod
	for n := range 5 { // each has its time, on a busy machine
		pods = m.untilPodsRun(n + 1)
	}
	state := m.runtimeState()

	// What a pod would write: readable for all, as most programs write.
	roots, shm := 0, 0
	mounts, err := os.ReadFile("/proc/self/mounts")
	m.must(err)
	own := account{-1, -1} // the root of the pod with users of its own
	ownBundle := ""
	for line := range strings.Lines(string(mounts)) {
		at := strings.Fields(line)[1]
		switch {
		case strings.HasPrefix(at, m.dir+"/") && filepath.Base(at) == "rootfs":
			roots++
			var st unix.Stat_t
			m.must(unix.Stat(at, &st))
			if st.Uid != 0 {
				own, ownBundle = account{int(st.Uid), int(st.Gid)}, filepath.Dir(at)
			}
		case strings.HasPrefix(at, state+"/shm/"):
			shm++
		case !strings.HasPrefix(at, m.dir+"/") || !strings.Contains(at, "/volumes/"):
			continue
		}
		m.must(os.WriteFile(filepath.Join(at, "of-the-pod"), []byte("secret"), 0o666))
		m.must(os.Chmod(filepath.Join(at, "of-the-pod"), 0o666)) //nolint:gosec // as a pod would
	}
	if roots < 5 || shm < 4 || own.uid <= 0 {
		t.Fatalf("%d root file systems, %d of shared memory, users begin at %d", roots, shm, own.uid)
	}
	found := everything(t, m.dir, state)
	delete(found, m.dir) // the test's own
	for name, a := range map[string]account{
		"ordinary account": {65534, 65534}, "account of a container": {own.uid + 1000, own.gid + 1000},
		"root of a container": own,
	} {
		var bad []string
		m.must(a.as(func() {
			for path, kind := range found {
				if m.accountsMay(path) || a == own && strings.HasPrefix(path, ownBundle+"/") {
					continue
				}
				if what := opens(path, kind); what != "" {
					bad = append(bad, fmt.Sprintf("%s %s", what, path))
				}
			}
		}))
		if len(bad) > 0 {
			t.Errorf("%s, of %d files:\n%s", name, len(found), strings.Join(bad[:min(len(bad), 40)], "\n"))
		}
	}
	m.noAbstractSockets(pods)
	m.stop()
}

// noAbstractSockets checks that the agent, and the monitors of its pods, listen at no
// name that is no file: such have no permissions.
func (m *machine) noAbstractSockets(pods []v1.Pod) {
	m.t.Helper()
	names, err := os.ReadFile("/proc/net/unix")
	m.must(err)
	abstract := map[string]string{} // by inode
	for line := range strings.Lines(string(names)) {
		if f := strings.Fields(line); len(f) > 7 && strings.HasPrefix(f[7], "@") {
			abstract["socket:["+f[6]+"]"] = f[7]
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	m.must(err)
	looked := 0
	for _, p := range processes {
		cmdline, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if p != "/proc/"+strconv.Itoa(m.cmd.Process.Pid) && !bytes.Contains(cmdline, []byte(m.dir)) {
			continue
		}
		looked++
		fds, _ := os.ReadDir(filepath.Join(p, "fd"))
		for _, fd := range fds {
			to, _ := os.Readlink(filepath.Join(p, "fd", fd.Name()))
			if name := abstract[to]; name != "" {
				m.t.Errorf("%s has the abstract socket %s", bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}), name)
			}
		}
	}
	if looked < 1+len(pods) {
		m.t.Errorf("%d processes of the agent and of %d monitors are found", looked, len(pods))
	}
}

// accountPods are pods of each kind.
const accountPods = `apiVersion: v1
kind: Secret
metadata: {name: s, namespace: default}
stringData: {key: a-value-that-nobody-else-reads}
---
apiVersion: v1
kind: Pod
metadata: {name: plain, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: s, secret: {secretName: s}}, {name: m, emptyDir: {medium: Memory}}, {name: e, emptyDir: {}}]
  containers:
  - name: c
    image: "localhost/nodewright/testbox:1"
    imagePullPolicy: Never
    args: [sleep, forever]
    env: [{name: KEY, valueFrom: {secretKeyRef: {name: s, key: key}}}]
    volumeMounts: [{name: s, mountPath: /s}, {name: m, mountPath: /m, subPath: sub}, {name: e, mountPath: /e, subPath: sub}, {name: m, mountPath: /m2}, {name: e, mountPath: /e2}]
---
apiVersion: v1
kind: Pod
metadata: {name: users, namespace: default}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 1
  volumes: [{name: s, secret: {secretName: s}}, {name: m, emptyDir: {medium: Memory}}, {name: e, emptyDir: {}}]
  containers: [{name: c, image: "localhost/nodewright/testbox:1", imagePullPolicy: Never, args: [sleep, forever], volumeMounts: [{name: s, mountPath: /s}, {name: m, mountPath: /m, subPath: sub}, {name: e, mountPath: /e, subPath: sub}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: host, namespace: default}
spec:
  hostNetwork: true
  hostPID: true
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "localhost/nodewright/testbox:1", imagePullPolicy: Never, args: [sleep, forever]}]
---
apiVersion: v1
kind: Pod
metadata: {name: together, namespace: default}
spec:
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "localhost/nodewright/testbox:1", imagePullPolicy: Never, args: [sleep, forever]}]
---
apiVersion: v1
kind: Pod
metadata: {name: terminal, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000, runAsGroup: 1000}
  containers: [{name: c, image: "localhost/nodewright/testbox:1", imagePullPolicy: Never, tty: true, stdin: true, args: [sleep, forever]}]
`
