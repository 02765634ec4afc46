package main

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/local"
)

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
