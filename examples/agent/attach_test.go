package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
)

// joinable is an agent with streams of containers.
type joinable struct {
	*fakeAgent
	reply local.AttachReply
	asked local.AttachRequest
}

func (j *joinable) Attach(_ context.Context, _ *v1.Pod, r local.AttachRequest) (local.AttachReply, error) {
	j.asked = r
	return j.reply, nil
}

func (j *joinable) PortForward(context.Context, *v1.Pod) (string, error) { return j.reply.URL, nil }

// The container decides which streams there are, and a person is told of those that there are not.
func TestAttach(t *testing.T) {
	for name, c := range map[string]struct {
		args    string
		reply   local.AttachReply
		streams []string
		said    string
	}{
		"outputs":          {"web", local.AttachReply{}, outputs, ""},
		"of a container":   {"web -c c", local.AttachReply{}, outputs, ""},
		"a terminal":       {"web", local.AttachReply{TTY: true}, []string{"error", "stdout", "resize"}, ""},
		"standard input":   {"web -i", local.AttachReply{Stdin: true}, append([]string{"stdin"}, outputs...), ""},
		"no input there":   {"web -i", local.AttachReply{}, outputs, "the container has no standard input (stdin: true): continuing without -i\n"},
		"no terminal here": {"web -t", local.AttachReply{TTY: true}, []string{"error", "stdout", "resize"}, "standard input is not a terminal: continuing without -t\n"},
		"quiet":            {"web -itq", local.AttachReply{}, outputs, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := &joinable{fakeAgent: &fakeAgent{pods: []*v1.Pod{testPod("default", "web")}}, reply: c.reply}
			a.reply.URL = runtimeDoor(t, c.streams, func(d door) {
				d.say("stdout", "text")
				d.say("error", outcomeOf("0"))
			})
			root := serveAgentOf(t, a)
			var out, errs bytes.Buffer
			code := execute(t.Context(), stdio{in: strings.NewReader("in"), out: &out, err: &errs}, append([]string{"attach", "--root-dir", root}, strings.Fields(c.args)...))
			if code != 0 || out.String() != "text" || errs.String() != c.said || a.asked.Container != "c" || a.asked.Stdin != strings.Contains(c.args, "-i") {
				t.Errorf("exit %d, %q, %q, asked %+v", code, out.String(), errs.String(), a.asked)
			}
		})
	}
	root := serveAgent(t, &fakeAgent{pods: []*v1.Pod{testPod("default", "web")}})
	for _, line := range []string{"attach web", "port-forward web 0:80"} {
		if _, stderr, code := ask(t, root, line); code != 1 || !strings.Contains(stderr, "this agent has no exec, attach or port forwarding") {
			t.Errorf("agent %s: exit %d, %q", line, code, stderr)
		}
	}
}
