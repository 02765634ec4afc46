package cmdline

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var testCommands = []Command{
	{Name: "run", Topic: "Run", Short: "run it"},
	{Name: "get", Topic: "Look", Short: "list things", Words: "pods events", Pods: true},
	{Name: "logs", Topic: "Look", Short: "print logs", Pods: true},
	{Name: "hidden"},
}

func request(line string) Request {
	return Request{
		Commands: testCommands, Words: strings.Split(line, " "),
		Flags: func(command string) *flag.FlagSet {
			fs := flag.NewFlagSet("agent "+command, flag.ContinueOnError)
			fs.String("o", "", "the `format`")
			fs.Bool("follow", false, "follow it")
			return fs
		},
		Pods:   func() []string { return []string{"web\tdefault", "db\tdefault"} },
		Values: map[string]string{"o": "wide json"},
	}
}

func TestCandidates(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"", "run\trun it,get\tlist things,logs\tprint logs"},
		{"g", "get\tlist things"},
		{"-", "--follow\tfollow it,-o\tthe format"},
		{"get ", "pods,events"},
		{"get e", "events"},
		{"get pods ", "web\tdefault,db\tdefault"},
		{"get pods web d", "db\tdefault"},
		{"get events ", ""},
		{"get -o ", "wide,json"},
		{"get -o j", "json"},
		{"get -o json p", "pods"},
		{"get -o=json p", "pods"},
		{"get --follow p", "pods"},
		{"-o json get p", "pods"},
		{"logs w", "web\tdefault"},
		{"logs web ", ""},
		{"logs -", "--follow\tfollow it,-o\tthe format"},
		{"logs -- ", ""},
		{"fly ", ""},
	} {
		if got := strings.Join(request(tc.line).Candidates(), ","); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.line, got, tc.want)
		}
	}
}

// The script of bash, in bash, with a program that answers with its own words.
func TestScriptInBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("needs bash")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "my-agent")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nfor w; do printf '<%s>\\tabout it\\n' \"$w\"; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	script, err := Script("bash", program)
	if err != nil {
		t.Fatal(err)
	}
	script += `
COMP_WORDS=(` + program + ` get "pods x" '') COMP_CWORD=3
_complete_my_agent
printf '%s\n' "${COMPREPLY[@]}"
complete -p my-agent
`
	cmd := exec.Command(bash, "--norc", "-u")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if want := "<__complete>\n<get>\n<pods x>\n<>\ncomplete -o default -F _complete_my_agent my-agent\n"; err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}

func TestScript(t *testing.T) {
	for _, shell := range Shells {
		s, err := Script(shell, "/usr/bin/agent")
		if err != nil || !strings.Contains(s, "__complete") || strings.Contains(s, "IDENTIFIER") || strings.Contains(s, "PROGRAM") {
			t.Errorf("%s: %v\n%s", shell, err, s)
		}
	}
	for _, bad := range [][2]string{{"csh", "agent"}, {"../bash", "agent"}, {"bash", "a b"}, {"bash", "$(x)"}} {
		if s, err := Script(bad[0], bad[1]); err == nil {
			t.Errorf("%v:\n%s", bad, s)
		}
	}
}

func TestUsage(t *testing.T) {
	var b bytes.Buffer
	if err := Usage(&b, "agent", testCommands); err != nil {
		t.Fatal(err)
	}
	const want = "\nRun:\n  agent run        \n                  run it\n\nLook:\n"
	if got := b.String(); !strings.HasPrefix(strings.ReplaceAll(got, " ", ""), strings.ReplaceAll(want, " ", "")) || strings.Contains(got, "hidden") {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestAgentTopic(t *testing.T) {
	for usage, want := range map[string]string{
		"field maxPods of the configuration, a number": fields,
		"--containerd of the kubelet has no effect":    unused,
		"the directory of pod manifests":               own,
	} {
		if got := AgentTopic(&flag.Flag{Name: "x", Usage: usage}); got != want || !slices.Contains(AgentTopics, got) {
			t.Errorf("%q: topic %q, want %q", usage, got, want)
		}
	}
	for name, want := range map[string]string{"kubeconfig": joined, "bootstrap-kubeconfig": joined, "v": output, "eviction-hard": limits, "network": local} {
		if got := AgentTopic(&flag.Flag{Name: name, Usage: "x"}); got != want {
			t.Errorf("%s: topic %q, want %q", name, got, want)
		}
	}
}
