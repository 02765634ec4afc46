package podruntime

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podspec"
)

// made has a container's files made, as a start does.
func made(t *testing.T, m *Manager, podDir, logsDir string, files ...podspec.File) error {
	t.Helper()
	w := build(v1.RestartPolicyAlways, nil, "c")
	s := &syncing{m: m, pod: w.pod, in: podspec.Input{Pod: w.pod, PodDir: podDir, Node: podspec.Node{PodLogsDir: logsDir}}}
	return s.materialize(t.Context(), &podspec.ContainerPlan{
		Dirs:  []podspec.Dir{{Path: filepath.Join(logsDir, "ns_pod_u", "c"), Mode: 0o755}, {Path: filepath.Join(podDir, "containers", "c"), Mode: 0o750}},
		Files: files,
	})
}

// A container has /etc/hosts mounted and may make anything of it.
func TestAHostsFileIsReplacedUnread(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(path string) error
		same bool // it stays the file that other containers have mounted
	}{
		{"a terabyte", func(p string) error { return os.Truncate(p, 1<<40) }, true},
		{"changed", func(p string) error { return os.WriteFile(p, []byte("10.0.0.1 mx"), 0o600) }, true},
		{"writable by all", func(p string) error { return os.Chmod(p, 0o666) }, true},
		{"as it was", func(string) error { return nil }, true},
		{"a link", func(p string) error { return errors.Join(os.Remove(p), os.Symlink("../secret", p)) }, false},
		{"another name of a file", func(p string) error {
			return errors.Join(os.Remove(p), os.Link(filepath.Join(filepath.Dir(filepath.Dir(p)), "secret"), p))
		}, false},
		{"a pipe", func(p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) }, false},
	} {
		top := t.TempDir()
		put(t, filepath.Join(top, "secret"), "of the node")
		f := podspec.File{Path: filepath.Join(top, "pod", "etc-hosts"), Mode: 0o644, Content: "127.0.0.1 lo"}
		m := manager(t, newMemory())
		if err := made(t, m, filepath.Join(top, "pod"), filepath.Join(top, "logs"), f); err != nil {
			t.Fatal(err)
		}
		if err := tc.do(f.Path); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Lstat(f.Path)
		if err := made(t, m, filepath.Join(top, "pod"), filepath.Join(top, "logs"), f); err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		after, err := os.Lstat(f.Path)
		if err != nil || after.Mode() != 0o644 || os.SameFile(before, after) != tc.same {
			t.Errorf("%s: %v (%v), was %v", tc.name, after, err, before)
		}
		if b, _ := os.ReadFile(f.Path); string(b) != f.Content {
			t.Errorf("%s: it has %q", tc.name, b)
		}
		if b, _ := os.ReadFile(filepath.Join(top, "secret")); string(b) != "of the node" {
			t.Errorf("%s: the node's file has %q", tc.name, b)
		}
	}
}

// What a container left of its own file of messages is not another's.
func TestAMessageFileIsKeptIfItIsOne(t *testing.T) {
	top := t.TempDir()
	podDir := filepath.Join(top, "pod")
	f := podspec.File{Path: filepath.Join(podDir, "containers", "c", "m"), Mode: 0o666, Keep: true}
	m := manager(t, newMemory())
	put(t, f.Path, "why")
	if err := made(t, m, podDir, filepath.Join(top, "logs"), f); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(f.Path); string(b) != "why" {
		t.Errorf("it has %q", b)
	}
	put(t, filepath.Join(top, "secret"), "of the node")
	if err := errors.Join(os.Remove(f.Path), os.Symlink(filepath.Join(top, "secret"), f.Path)); err != nil {
		t.Fatal(err)
	}
	if err := made(t, m, podDir, filepath.Join(top, "logs"), f); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Lstat(f.Path); err != nil || !fi.Mode().IsRegular() {
		t.Errorf("a link was kept, for the container to mount what it leads to: %v, %v", fi, err)
	}
}

// Whoever may write to the pod's or the logs' directory puts a link into the
// way of what is to be made.
func TestNothingIsMadeBehindALink(t *testing.T) {
	for _, link := range []string{"pod/containers", "pod/containers/c", "logs/ns_pod_u", "logs/ns_pod_u/c"} {
		top := t.TempDir()
		victim := filepath.Join(top, "victim")
		for _, err := range []error{
			os.MkdirAll(victim, 0o700), os.MkdirAll(filepath.Dir(filepath.Join(top, link)), 0o700), os.Symlink(victim, filepath.Join(top, link)),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		podDir := filepath.Join(top, "pod")
		m := manager(t, newMemory())
		err := made(t, m, podDir, filepath.Join(top, "logs"), podspec.File{Path: filepath.Join(podDir, "containers", "c", "m"), Mode: 0o666})
		if !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("%s: %v, want that it is no directory", link, err)
		}
		if e, _ := os.ReadDir(victim); len(e) > 0 {
			t.Errorf("%s: made %v behind it", link, e)
		}
	}
}

// A pod that may write to the node's logs wants its status to show a file of
// the node, or its worker to wait.
func TestAMessageIsOfARegularFileOfThePod(t *testing.T) {
	const secret = "2026-11-21T07:00:00.000000000Z stdout F client-key-data\n"
	for _, tc := range []struct {
		name string
		log  func(t *testing.T, top, log string) error
		want string
	}{
		{"a log", func(_ *testing.T, _, log string) error { return os.WriteFile(log, []byte(secret), 0o600) }, "client-key-data\n"},
		{"a link", func(_ *testing.T, top, log string) error { return os.Symlink(filepath.Join(top, "secret"), log) }, ""},
		{"a link to another pod's", func(t *testing.T, top, log string) error {
			put(t, filepath.Join(top, "logs", "other"), secret)
			return os.Symlink("../../other", log)
		}, ""},
		{"a link in the way", func(t *testing.T, top, log string) error {
			put(t, filepath.Join(top, "dir", "3.log"), secret)
			return errors.Join(os.Remove(filepath.Dir(log)), os.Symlink(filepath.Join(top, "dir"), filepath.Dir(log)))
		}, ""},
		{"a pipe", func(_ *testing.T, _, log string) error { return syscall.Mkfifo(log, 0o600) }, ""},
		{"a terabyte", func(_ *testing.T, _, log string) error {
			return errors.Join(os.WriteFile(log, nil, 0o600), os.Truncate(log, 1<<40))
		}, strings.Repeat("\x00", maxLogMessage)},
	} {
		top := t.TempDir()
		put(t, filepath.Join(top, "secret"), secret)
		m, err := New(Config{Runtime: newMemory(), Images: present{}, PodLogsDir: filepath.Join(top, "logs")})
		if err != nil {
			t.Fatal(err)
		}
		log := filepath.Join(top, "logs", "ns_pod_u", "c", "3.log")
		if err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o755), tc.log(t, top, log)); err != nil {
			t.Fatal(err)
		}
		if got := messageOf(m, top, log); got != tc.want {
			t.Errorf("%s: %.80q (%d bytes), want %.80q", tc.name, got, len(got), tc.want)
		}
	}
	// A runtime names a file that is no log.
	top := t.TempDir()
	put(t, filepath.Join(top, "secret"), secret)
	m := manager(t, newMemory())
	for _, log := range []string{filepath.Join(top, "secret"), m.cfg.PodLogsDir + "/../secret", "secret", ""} {
		if got := messageOf(m, top, log); got != "" {
			t.Errorf("log %q: %q", log, got)
		}
	}
}

func messageOf(m *Manager, podDir, log string) string {
	w := build(v1.RestartPolicyNever, nil, "c")
	w.pod.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	obs := &observed.Pod{UID: w.pod.UID, Containers: []observed.Container{{Name: "c", State: observed.Exited, ExitCode: new(int32(1)), LogPath: log}}}
	return m.WithMessages(w.pod, podDir, obs).Containers[0].Message
}

// Removing a container's logs removes nothing behind a link, and directories
// that a pod gave the names of logs hold nothing up.
func TestLogsAreRemovedWhereTheyAre(t *testing.T) {
	top := t.TempDir()
	m, err := New(Config{Runtime: newMemory(), Images: present{}, PodLogsDir: filepath.Join(top, "logs")})
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(top, "victim", "passwd"), "root")
	put(t, filepath.Join(top, "logs", "ns_pod_u", "c", "0.log.d", "f"), "")
	put(t, filepath.Join(top, "logs", "ns_pod_u", "c", "0.log"), "")
	if err := os.Symlink(filepath.Join(top, "victim"), filepath.Join(top, "logs", "ns_pod_u", "l")); err != nil {
		t.Fatal(err)
	}
	if err := m.removeLogs(t.Context(), &observed.Container{LogPath: filepath.Join(top, "logs", "ns_pod_u", "c", "0.log")}); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(top, "logs", "ns_pod_u", "c", "0.log")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the log is there: %v", err)
	}
	if err := m.removeLogs(t.Context(), &observed.Container{LogPath: filepath.Join(top, "logs", "ns_pod_u", "l", "passwd")}); err == nil {
		t.Error("removed behind a link")
	}
	if _, err := os.Lstat(filepath.Join(top, "victim", "passwd")); err != nil {
		t.Error(err)
	}
}

// A file system does not answer: what waits for it goes on after a while
// without, and other pods, and the pod's files elsewhere, do not wait at all.
func TestAFileSystemThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := manager(t, newMemory())
		podDir, log := t.TempDir(), filepath.Join(m.cfg.PodLogsDir, "ns_pod_u", "c", "3.log")
		put(t, log, "2026-11-21T07:00:00.000000000Z stdout F said\n")
		hang := make(chan struct{})
		go func() {
			_, _ = onDisk(t.Context(), &m.disk, "u", inLogs, func() (int, error) { <-hang; return 0, nil })
		}()
		synctest.Wait()
		began := time.Now()
		for range 100 {
			if got := messageOf(m, podDir, log); got != "" {
				t.Fatalf("%q", got)
			}
		}
		if took := time.Since(began); took != 100*fileTimeout {
			t.Errorf("100 looks took %v, want %v", took, 100*fileTimeout)
		}
		if n := m.disk.InFlight(); n != 1 {
			t.Errorf("%d calls wait, want 1", n)
		}
		began = time.Now()
		err := made(t, m, podDir, m.cfg.PodLogsDir)
		if err == nil || !strings.Contains(err.Error(), "log directory did not answer") || time.Since(began) != fileTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := onDisk(t.Context(), &m.disk, "other", inLogs, func() (int, error) { return 0, nil }); err != nil {
			t.Errorf("another pod: %v", err)
		}
		if _, err := onDisk(t.Context(), &m.disk, "u", inPodDir, func() (int, error) { return 0, nil }); err != nil {
			t.Errorf("another place: %v", err)
		}
		close(hang)
		synctest.Wait()
		if got := messageOf(m, podDir, log); got != "said\n" {
			t.Errorf("afterwards: %q", got)
		}
	})
}

// All files of volumes that a container has variables of have one deadline.
func TestVariablesFromVolumesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := build(v1.RestartPolicyAlways, nil, "c")
		for _, name := range []string{"a", "b", "d", "e"} {
			optional := true
			w.pod.Spec.Containers[0].Env = append(w.pod.Spec.Containers[0].Env, v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{
				FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: name, Key: "K", Optional: &optional}}})
		}
		m := manager(t, newMemory())
		s := &syncing{m: m, pod: w.pod, in: podspec.Input{Pod: w.pod, PodDir: t.TempDir(), Volumes: map[string]string{"v": t.TempDir()}, Node: podspec.Node{PodLogsDir: t.TempDir()}}}
		hang := make(chan struct{})
		go func() {
			_, _ = onDisk(t.Context(), &m.disk, "u", inVolumes, func() (int, error) { <-hang; return 0, nil })
		}()
		synctest.Wait()
		began := time.Now()
		_, err := s.compile(t.Context(), &w.pod.Spec.Containers[0], podspec.ContainerOptions{})
		if err == nil || time.Since(began) != fileTimeout {
			t.Errorf("%v after %v, want an error after %v", err, time.Since(began), fileTimeout)
		}
		close(hang)
		synctest.Wait()
		if _, err := s.compile(t.Context(), &w.pod.Spec.Containers[0], podspec.ContainerOptions{}); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
