package agent_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/agenttest"
)

func TestRunToCompletion(t *testing.T) {
	for name, tc := range map[string]struct {
		pod   func(*v1.Pod)
		limit time.Duration
		code  int32 // of the container
		err   error
		text  string // of the error
	}{
		"to its end": {pod: func(*v1.Pod) {}, code: 7},
		"restarted": {
			pod: func(p *v1.Pod) {
				p.Spec.RestartPolicy, p.Spec.ActiveDeadlineSeconds = v1.RestartPolicyOnFailure, new(int64(200))
			},
			code: -1,
		},
		"called off": {
			pod:   func(p *v1.Pod) { p.Spec.Containers[0].Args = []string{"sleep", "forever"} },
			limit: time.Minute, code: 143, err: context.DeadlineExceeded,
		},
		"no room":     {pod: func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }, code: -1},
		"mistakes":    {pod: func(p *v1.Pod) { p.Spec.Containers[0].Name = "Main" }, text: "spec.containers[0].name"},
		"without end": {pod: func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyAlways }, text: "want Never or OnFailure"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := agenttest.New(t)
				n.Config.Sources = nil
				pod := agenttest.Pod("job", agenttest.Container("main", "sleep", "2s", "exit", "7"))
				sidecar := agenttest.Container("db", "sleep", "forever")
				sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
				pod.Spec.InitContainers = []v1.Container{agenttest.Container("checkout", "sleep", "1s"), sidecar}
				pod.Spec.RestartPolicy, pod.UID = "", ""
				tc.pod(pod)
				ctx := t.Context()
				if tc.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.limit)
					defer cancel()
				}
				st, err := agent.RunToCompletion(ctx, n.Config, pod, nil)
				if tc.text != "" {
					if err == nil || !strings.Contains(err.Error(), tc.text) {
						t.Errorf("error %v, want %q", err, tc.text)
					}
					return
				}
				if !errors.Is(err, tc.err) || st.Phase != v1.PodFailed {
					t.Errorf("%s (%s %s), %v", st.Phase, st.Reason, st.Message, err)
				}
				if tc.code >= 0 && (len(st.ContainerStatuses) != 1 || st.ContainerStatuses[0].State.Terminated == nil || st.ContainerStatuses[0].State.Terminated.ExitCode != tc.code) {
					t.Errorf("containers %+v, want exit code %d", st.ContainerStatuses, tc.code)
				}
				if list, err := n.Runtime.ListPodSandbox(context.Background(), nil); err != nil || len(list) > 0 {
					t.Errorf("%d sandboxes are left, %v", len(list), err)
				}
				if r := n.Sink.Reports(); len(r) == 0 || !r[len(r)-1].Deleted {
					t.Error("the sink did not hear of the deletion")
				}
			})
		})
	}
}

// Logs are whole when the call returns. Their files are watched by the kernel, so that time is the machine's.
func TestRunToCompletionCopiesLogs(t *testing.T) {
	n := agenttest.New(t)
	n.Config.Sources = nil
	pod := agenttest.Pod("job", agenttest.Container("main", "out", "built", "sleep", "50ms", "out", "tested", "exit", "0"))
	pod.Spec.InitContainers = []v1.Container{agenttest.Container("checkout", "out", "cloned")}
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	var mu sync.Mutex
	logs := map[string]*bytes.Buffer{}
	st, err := agent.RunToCompletion(t.Context(), n.Config, pod, func(c string) io.Writer {
		mu.Lock()
		defer mu.Unlock()
		logs[c] = &bytes.Buffer{}
		return logs[c]
	})
	if err != nil || st.Phase != v1.PodSucceeded || len(logs) != 2 {
		t.Fatalf("%s, %v, %d logs", st.Phase, err, len(logs))
	}
	if a, b := logs["checkout"].String(), logs["main"].String(); a != "cloned\n" || b != "built\ntested\n" {
		t.Errorf("logs %q and %q", a, b)
	}
}
