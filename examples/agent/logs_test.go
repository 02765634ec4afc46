package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestLogs(t *testing.T) {
	old, recent := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano), time.Now().Add(-time.Minute).UTC().Format(time.RFC3339Nano)
	dir := files(t, map[string]string{
		"c.log":    old + " stdout F one\n" + recent + " stderr F two\n" + recent + " stdout F three\n",
		"prev.log": old + " stdout F before\n",
		"side.log": old + " stdout F beside\n",
	})
	p := testPod("default", "web-edge")
	p.Labels = map[string]string{"app": "web"}
	p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "side"})
	p.Status.ContainerStatuses[0].State = ended(0, "Completed") // or -f would not end
	root := serveAgent(t, &fakeAgent{pods: []*v1.Pod{p}, logs: map[string]string{
		"c": filepath.Join(dir, "c.log"), "previous/c": filepath.Join(dir, "prev.log"), "side": filepath.Join(dir, "side.log"),
	}})
	const all = "one\ntwo\nthree\n"
	for _, tc := range []struct{ line, want string }{
		{"logs web", all},
		{"logs web c", all},
		{"logs -c c web", all},
		{"logs web --container=c c", all},
		{"logs web side", "beside\n"},
		{"logs web -p", "before\n"},
		{"logs --previous web", "before\n"},
		{"logs web --tail 1", "three\n"},
		{"logs web --tail=0", ""},
		{"logs web --tail -1", all},
		{"logs web --since 5m", "two\nthree\n"},
		{"logs web --since 0s", all},
		{"logs web --timestamps side", old + " beside\n"},
		{"logs -f web --tail 2", "two\nthree\n"},
		{"logs --follow default/web", all},
		{"logs pod/web --tail 1", "three\n"},
		{"logs web --all-containers --tail 1", "three\nbeside\n"},
		{"logs web --all-containers --prefix --tail 1", "[pod/web-edge/c] three\n[pod/web-edge/side] beside\n"},
		{"logs -l app=web", all},
		{"logs -l app=web -c side --prefix -f", "[pod/web-edge/side] beside\n"},
		{"logs web --since-time " + time.Now().Add(-5*time.Minute).UTC().Format(time.RFC3339), "two\nthree\n"},
	} {
		stdout, stderr, code := ask(t, root, tc.line)
		if code != 0 || stderr != "" || stdout != tc.want {
			t.Errorf("agent %s: exit %d, stderr %q, %q; want %q", tc.line, code, stderr, stdout, tc.want)
		}
	}
	for _, tc := range []struct{ line, want string }{
		{"logs web nobody", `container "nobody": not found`},
		{"logs web side -p", `container "previous/side": not found`},
		{"logs web side -c c", `-c c with container "side": want one of them`},
		{"logs web c side", "which pod? Give one name"},
		{"logs web --tail -2", "--tail=-2: want a number of lines, or -1 for all"},
		{"logs web --tail some", `--tail="some": want a whole number`},
		{"logs web --since -1s", "--since=-1s: want a duration above 0"},
		{"logs web --since yesterday", `--since="yesterday": want a duration such as 30s`},
		{"logs web -l app=web", `--selector with "web": want one of them`},
		{"logs -l a=b=c", `--selector="a=b=c": `},
		{"logs web c --all-containers", `--all-containers with container "c": want one of them`},
		{"logs web --since 5m --since-time 2030-01-02T15:04:05Z", "--since with --since-time: want one of them"},
		{"logs web --since-time today", `--since-time="today": want a time such as 2030-01-02T15:04:05Z`},
		{"logs web --all-containers -f --max-log-requests 1", "--follow of 2 containers: want at most --max-log-requests=1"},
		{"logs web -f=perhaps", `--follow="perhaps": want true or false`},
	} {
		stdout, stderr, code := ask(t, root, tc.line)
		if code != 1 || stdout != "" || !strings.HasPrefix(stderr, "agent: "+tc.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("agent %s: exit %d, stdout %q, stderr %q; want %q", tc.line, code, stdout, stderr, tc.want)
		}
	}
	if err := os.Remove(filepath.Join(dir, "side.log")); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, code := ask(t, root, "logs web side"); code != 1 || stdout != "" || !strings.Contains(stderr, "side.log") {
		t.Errorf("without the file: exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}
