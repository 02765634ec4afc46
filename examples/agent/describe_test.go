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
			State: "does not run", Cause: "container c has ended\n5 times", Evidence: []string{"its last words:\tno route"},
			NextAt: now.Add(time.Hour + 30*time.Second), Next: "next start", Do: []string{"agent logs web"},
		}, "default/web does not run: container c has ended 5 times\n  its last words: no route\n  next start: " +
			now.Add(time.Hour+30*time.Second).Format(time.TimeOnly) + " (in 60m)\n  do: agent logs web\n"},
		{"the least of it", local.Why{Good: true, State: "runs"}, "default/web runs, and is as it should be\n"},
		{"late", local.Why{State: "is not up yet", Cause: "it waits for x", NextAt: now.Add(-time.Hour)},
			"default/web is not up yet: it waits for x\n  next look: " + now.Add(-time.Hour).Format(time.TimeOnly) + " (in 0s)\n"},
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
