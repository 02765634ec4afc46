package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
)

// keeper is an agent with one image.
type keeper struct{ *fakeAgent }

func (keeper) PullImage(context.Context, string) (string, error) { return "sha256:1", nil }

func (keeper) LoadImages(_ context.Context, r io.Reader, _ string) ([]string, error) {
	_, err := io.Copy(io.Discard, r)
	return []string{"sha256:1", "sha256:2"}, err
}

func (keeper) RemoveImage(context.Context, string, bool) error { return nil }

func (keeper) Images(context.Context) (local.Images, error) {
	return local.Images{Images: []local.Image{{Name: "docker.io/library/app:1", ID: "sha256:1", Size: 2 << 20}}}, nil
}

// Whoever pulls or loads an image is told its name, size and ID, and who waited; with -q the ID alone.
func TestImagesSayWhatCame(t *testing.T) {
	waits := testPod("default", "web")
	waits.Spec.Containers[0].Image = "app:1"
	waits.Status.ContainerStatuses[0].State = waiting("ImagePullBackOff")
	root := serveAgentOf(t, keeper{&fakeAgent{pods: []*v1.Pod{waits}}})
	for line, want := range map[string][2]string{
		"images pull app:1":     {"pulled docker.io/library/app:1 (2.0MiB, sha256:1); 1 pod waited for it\n", "pulling app:1\n"},
		"images pull -q app:1":  {"sha256:1\n", ""},
		"images load -":         {"loaded docker.io/library/app:1 (2.0MiB, sha256:1); 1 pod waited for it\nloaded sha256:2\n", ""},
		"images load --quiet -": {"sha256:1\nsha256:2\n", ""},
		"images rm app:1":       {"removed app:1\n", ""},
	} {
		if stdout, stderr, code := ask(t, root, line); code != 0 || stdout != want[0] || stderr != want[1] {
			t.Errorf("agent %s: exit %d, %q, %q; want %q", line, code, stdout, stderr, want)
		}
	}
}

func TestImagesWords(t *testing.T) {
	for args, want := range map[string]string{
		"images ls":             `unknown command "ls"; agent images --help lists the commands`,
		"images pul":            `unknown command "pul"; did you mean pull?`,
		"images pull":           "which? Give at least one IMAGE",
		"images load":           "which? Give at least one FILE",
		"images load /none.tar": "/none.tar: no such file",
		"images -o yaml":        `-o "yaml": want json`,
		"images -o json rm a":   "unknown flag -o",
		"images --name n pull":  "unknown flag --name",
		"images --force pull a": "unknown flag --force",
		"images pull a b":       "no agent answers at /none/agent.sock",
	} {
		var out, msg bytes.Buffer
		code := execute(t.Context(), stdio{in: strings.NewReader(""), out: &out, err: &msg}, append([]string{"--root-dir", "/none"}, strings.Fields(args)...))
		if code != 1 || !strings.Contains(msg.String(), want) {
			t.Errorf("%s: %d, %q; want %q", args, code, msg.String(), want)
		}
	}
}
