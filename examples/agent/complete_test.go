package main

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestCompletion(t *testing.T) {
	root := serveAgent(t, &fakeAgent{pods: []*v1.Pod{testPod("default", "web"), testPod("kube-system", "db")}})
	for _, tc := range []struct {
		words string
		want  string // the candidates without their descriptions
	}{
		{"co", "completion"},
		{"completion ", "bash zsh fish"},
		{"get ", "pods events"},
		{"get pods --root-dir ROOT ", "web db"},
		{"--root-dir=ROOT describe pod w", "web"},
		{"logs --root-dir ROOT -n kube-system ", "db"},
		{"why --root-dir ROOT ", "node web db"},
		{"logs --root-dir /none ", ""},
		{"logs --ta", "--tail"},
		{"--pod-man", "--pod-manifest-path"},
		{"run --netw", "--network"},
		{"run --network c", "cni"},
		{"get -o j", "json"},
	} {
		stdout, stderr, code := invoke(t, append([]string{completeCommand}, strings.Split(strings.ReplaceAll(tc.words, "ROOT", root), " ")...)...)
		var got []string
		for line := range strings.Lines(stdout) {
			word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			got = append(got, word)
		}
		if code != 0 || stderr != "" || strings.Join(got, " ") != tc.want {
			t.Errorf("%q: exit %d, stderr %q, %q; want %q", tc.words, code, stderr, got, tc.want)
		}
	}
	if stdout, _, code := invoke(t, "completion", "fish"); code != 0 || !strings.Contains(stdout, completeCommand) {
		t.Errorf("exit %d\n%s", code, stdout)
	}
	if _, stderr, code := invoke(t, "completion", "csh"); code != 1 || stderr != "agent: shell \"csh\": want bash, zsh, fish\n" {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// Every command hands its flags to completion, and does nothing else then.
func TestCompletionFlags(t *testing.T) {
	for _, c := range commands() {
		if flagsOf(c.Name) == nil {
			t.Errorf("agent %s has no flags", c.Name)
		}
	}
}
