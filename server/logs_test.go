package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/server"
)

const text = `2026-01-02T03:04:01Z stdout F one
2026-01-02T03:04:02Z stderr F two
2026-01-02T03:04:03Z stdout F three
`

func withLog(t *testing.T) server.Config {
	t.Helper()
	c := whole(t)
	path := filepath.Join(c.PodLogsDir, "0.log")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Logs = &logs{path: path}
	return c
}

func TestContainerLogs(t *testing.T) {
	c := withLog(t)
	h := handler(t, c)
	c.SplitLogStreams = true
	split := handler(t, c)
	for _, tc := range []struct {
		url   string
		split bool
		code  int
		body  string
	}{
		{"default/web/c", false, 200, "one\ntwo\nthree\n"},
		{"default/web/c?tailLines=2", false, 200, "two\nthree\n"},
		{"default/web/c?tail=1", false, 200, "three\n"},
		{"default/web/c?tail=0", false, 200, ""},
		{"default/web/c?tail=all", false, 200, "one\ntwo\nthree\n"},
		{"default/web/c?tail=all&tailLines=1", false, 200, "one\ntwo\nthree\n"},
		{"default/web/c?limitBytes=5", false, 200, "one\nt"},
		{"default/web/c?timestamps=true&tail=1", false, 200, "2026-01-02T03:04:03Z three\n"},
		{"default/web/c?timestamps&tail=1", false, 200, "2026-01-02T03:04:03Z three\n"},
		{"default/web/c?timestamps=false&tail=1", false, 200, "three\n"},
		{"default/web/c?timestamps=0&tail=1", false, 200, "three\n"},
		{"default/web/c?sinceTime=2026-01-02T03:04:03Z", false, 200, "three\n"},
		{"default/web/c?sinceSeconds=9223372036854775807", false, 200, "one\ntwo\nthree\n"},
		{"default/web/c?follow=true&insecureSkipTLSVerifyBackend=true", false, 200, "one\ntwo\nthree\n"},
		{"default/web/c?stream=All", false, 200, "one\ntwo\nthree\n"},
		{"default/web/c?stream=Stderr", true, 200, "two\n"},
		{"default/web/c?stream=Stdout", true, 200, "one\nthree\n"},

		{"default/web", false, 400, "want /containerLogs/"},
		{"default//c", false, 400, "empty elements"},
		{"default/web/c?tail=some", false, 400, `tail is "some"`},
		{"default/web/c?tailLines=1e3", false, 400, "tailLines"},
		{"default/web/c?limitBytes=x&sinceTime=noon", false, 400, `limitBytes is "x"; want a number; sinceTime is "noon"`},
		{"default/web/c?stream=Stderr", false, 400, "stream"},
		{"default/web/c?tail=-1", false, 422, "tailLines is -1"},
		{"default/web/c?tailLines=-1", false, 422, "tailLines is -1"},
		{"default/web/c?limitBytes=0", false, 422, "limitBytes is 0"},
		{"default/web/c?sinceSeconds=0", false, 422, "sinceSeconds is 0"},
		{"default/web/c?sinceSeconds=1&sinceTime=2026-01-02T03:04:03Z", false, 422, "exclude each other"},
		{"default/web/c?stream=Stderr&tailLines=1", true, 422, "tailLines is set and stream"},
		{"default/web/c?stream=Both", true, 422, `stream is "Both"`},
		{"none/none/none?tail=-1", false, 422, "tailLines"}, // before the pod is looked for
		{"default/none/c", false, 404, `pod "none" does not exist`},
		{"other/web/c", false, 404, `pod "web" does not exist`},
		{"default/web/none", false, 404, `container "none" not found in pod "web"`},
		{"default/web/c?previous=true", false, 400, `previous terminated container "c" in pod "web" not found`},
		{"default/web/init", false, 400, `container "init" in pod "web" is not available`},
	} {
		at := h
		if tc.split {
			at = split
		}
		w := do(at, "GET", "/containerLogs/"+tc.url, "")
		if w.Code != tc.code || tc.code == 200 && w.Body.String() != tc.body || !strings.Contains(w.Body.String(), tc.body) {
			t.Errorf("%s = %d %q, want %d %q", tc.url, w.Code, w.Body, tc.code, tc.body)
		}
	}
}

// The runtime's errors, and logs that are elsewhere, are 400 with their text.
func TestLogsThatCannotBeRead(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		logs logs
	}{
		{"error", logs{err: errors.New("no such container")}},
		{"no log", logs{}},
		{"outside", logs{path: outside}},
		{"relative", logs{path: "../../etc/passwd"}},
		{"missing", logs{path: "/var/log/pods/none"}},
	} {
		c := whole(t)
		c.Logs = &tc.logs
		w := do(handler(t, c), "GET", "/containerLogs/default/web/c", "")
		if w.Code != 400 || w.Body.Len() == 0 || strings.Contains(w.Body.String(), "secret\n") {
			t.Errorf("%s: %d %q, want 400 and why", tc.name, w.Code, w.Body)
		}
	}
	c := whole(t)
	link := filepath.Join(c.PodLogsDir, "link")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	c.Logs = &logs{path: link}
	if w := do(handler(t, c), "GET", "/containerLogs/default/web/c", ""); w.Code != 400 {
		t.Errorf("a link that leads out: %d %q", w.Code, w.Body)
	}
}

func TestLogOf(t *testing.T) {
	terminated := func(id string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id}}
	}
	waiting := func(reason string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	}
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	for _, tc := range []struct {
		name        string
		id          string
		state, last v1.ContainerState
		previous    bool
		want        string
	}{
		{"running", "containerd://1", running, terminated("containerd://0"), false, "1"},
		{"previous", "containerd://1", running, terminated("containerd://0"), true, "0"},
		{"no previous", "containerd://1", running, v1.ContainerState{}, true, `previous terminated container "c" in pod "p" not found`},
		{"previous without an id", "containerd://1", running, terminated(""), true, `previous terminated container "c" in pod "p" not found`},
		{"running without an id", "", running, v1.ContainerState{}, false, `container "c" in pod "p" is waiting to start - no logs yet`},
		{"terminated", "containerd://1", terminated("containerd://1"), terminated("containerd://0"), false, "1"},
		{"terminated, did not start", "", terminated(""), terminated("containerd://0"), false, "0"},
		{"terminated, never started", "", terminated(""), v1.ContainerState{}, false, `container "c" in pod "p" is terminated`},
		{"waiting after an end", "", waiting("CrashLoopBackOff"), terminated("docker://0"), false, "0"},
		{"waiting after an end without an id", "", waiting("CrashLoopBackOff"), terminated(""), false, `container "c" in pod "p" is terminated`},
		{"pull failed", "", waiting("ErrImagePull"), v1.ContainerState{}, false, `container "c" in pod "p" is waiting to start: image can't be pulled`},
		{"pull back-off", "", waiting("ImagePullBackOff"), v1.ContainerState{}, false, `container "c" in pod "p" is waiting to start: trying and failing to pull image`},
		{"creating", "", waiting("ContainerCreating"), v1.ContainerState{}, false, `container "c" in pod "p" is waiting to start: ContainerCreating`},
		{"unknown", "", v1.ContainerState{}, v1.ContainerState{}, false, `container "c" in pod "p" is waiting to start - no logs yet`},
	} {
		cs := []v1.ContainerStatus{{Name: "other"}, {Name: "c", ContainerID: tc.id, State: tc.state, LastTerminationState: tc.last}}
		for kind, st := range map[string]*v1.PodStatus{
			"regular": {ContainerStatuses: cs}, "init": {InitContainerStatuses: cs}, "ephemeral": {EphemeralContainerStatuses: cs},
		} {
			got, err := server.LogOf(st, "p", "c", tc.previous)
			if err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("%s, %s: %q, want %q", tc.name, kind, got, tc.want)
			}
		}
	}
}
