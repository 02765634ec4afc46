package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/local"
)

func TestDescribe(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	start := metav1.NewTime(now.Add(-time.Hour))
	p := testPod("default", "web-edge")
	p.Labels = map[string]string{"tier": "front", "app": "web"}
	p.Spec.InitContainers = []v1.Container{{Name: "prepare", Image: "img:0"}}
	p.Status.StartTime, p.Status.QOSClass = &start, v1.PodQOSBurstable
	p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "prepare", ContainerID: "containerd://1", State: ended(0, "Completed")}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{
		Name: "c", ContainerID: "containerd://2", RestartCount: 3,
		State:                v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 2, Reason: "Error", Message: "first\nsecond\t\x1b[31mred"}},
	}}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: "c"}}
	events := []v1.Event{{Type: "Warning", Reason: "BackOff", Count: 4, Message: "back-off\nrestarting", LastTimestamp: metav1.NewTime(now.Add(-70 * time.Second))}}

	var b bytes.Buffer
	writePod(&b, p, events, now)
	want := `
Name:         web-edge
Namespace:    default
UID:          uid-1
Node:         edge
Start time:   Wed, 02 Jan 2030 02:04:05 +0000
Labels:       app=web, tier=front
Annotations:  <none>
Status:       CrashLoopBackOff
IP:           10.0.0.3
QoS class:    Burstable
Init containers:
  prepare:
    Image:          img:0
    Container ID:   containerd://1
    State:          Terminated (Completed) exit code 0
    Ready:          false
    Restart count:  0
Containers:
  c:
    Image:          img:1
    Container ID:   containerd://2
    State:          Waiting (CrashLoopBackOff) back-off 40s
    Last state:     Terminated (Error) exit code 2 first second [31mred
    Ready:          false
    Restart count:  3
Conditions:
  Ready  False  ContainersNotReady  c
Events:
  Warning  BackOff  70s ago (x4)  back-off restarting
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got%s\nwant%s", got, want)
	}
}

func TestDescribeBare(t *testing.T) {
	p := testPod("default", "web")
	p.Status = v1.PodStatus{Message: "the node was low on\nmemory"}
	var b bytes.Buffer
	writePod(&b, p, nil, time.Now())
	for _, want := range []string{
		"\nStatus:       Pending\n", "\nMessage:      the node was low on memory\n", "\nIP:           <none>\n",
		"\n  c:\n    Image:  img:1\nConditions:  <none>\nEvents:  <none>\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestDescribeStates(t *testing.T) {
	at := metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	for _, tc := range []struct {
		state v1.ContainerState
		want  string
	}{
		{v1.ContainerState{}, "Waiting"},
		{waiting(""), "Waiting"},
		{waiting("ErrImagePull"), "Waiting (ErrImagePull)"},
		{ended(0, "Completed"), "Terminated (Completed) exit code 0"},
		{ended(9, ""), "Terminated exit code 9"},
		{v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at}}, "Running since Wed, 02 Jan 2030 03:04:05 +0000"},
	} {
		if got := stateLine(tc.state); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

func TestDescribeCommand(t *testing.T) {
	root := serveAgent(t, &fakeAgent{
		pods:   []*v1.Pod{testPod("default", "web-edge")},
		events: []v1.Event{{Type: "Normal", Reason: "Started", LastTimestamp: metav1.Now()}},
	})
	for _, line := range []string{"describe pod web", "describe web", "describe pods default/web-edge", "-n default describe po web"} {
		stdout, stderr, code := ask(t, root, line)
		if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "Name:         web-edge\n") || !strings.Contains(stdout, "Started") {
			t.Errorf("agent %s: exit %d, stderr %q\n%s", line, code, stderr, stdout)
		}
	}
}

func TestDescribeWhy(t *testing.T) {
	a := &fakeAgent{pods: []*v1.Pod{testPod("default", "web")}}
	a.pods[0].Status.ContainerStatuses[0].State = waiting("ErrImagePull")
	now := time.Now()
	for _, tc := range []struct {
		name string
		why  local.Why
		want string
	}{
		{"all of it", local.Why{
			Stage: "sync", Since: now.Add(-90 * time.Minute), WaitingFor: "the image", NextAt: now.Add(time.Hour + 30*time.Second),
			NextReason: "pull again", LastError: "pull:\nno route", Failures: 3,
			Containers: []local.ContainerWhy{{Name: "c", State: "waiting", Reason: "ErrImagePull", Message: "no\nroute"}, {Name: "d", State: "created"}},
		}, "default/web is ErrImagePull (sync, since 90m)\nwaits for: the image\nnext look: in 60m (pull again)\n" +
			"last error: pull: no route (3 in a row)\ncontainer c: waiting ErrImagePull no route\ncontainer d: created\n"},
		{"the least of it", local.Why{Stage: "waiting"}, "default/web is ErrImagePull (waiting)\n"},
		{"late", local.Why{Stage: "sync", WaitingFor: "x", NextAt: now.Add(-time.Hour)},
			"default/web is ErrImagePull (sync)\nwaits for: x\nnext look: in 0s\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a.why = tc.why
			a.why.Namespace, a.why.Name = "default", "web"
			stdout, stderr, code := ask(t, serveAgent(t, a), "why web")
			if code != 0 || stderr != "" || stdout != tc.want {
				t.Errorf("exit %d, stderr %q\n%s\nwant\n%s", code, stderr, stdout, tc.want)
			}
		})
	}
}
