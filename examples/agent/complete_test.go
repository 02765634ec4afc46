package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
)

func TestCompletion(t *testing.T) {
	root := serveAgent(t, &fakeAgent{pods: []*v1.Pod{testPod("default", "web"), testPod("kube-system", "db")}})
	for _, tc := range []struct {
		words string
		want  string // the candidates without their descriptions
	}{
		{"desc", "describe"},
		{"completion ", "bash fish powershell zsh"},
		{"get ", "pods events nodes configmaps secrets namespaces persistentvolumeclaims persistentvolumes images"},
		{"get pods --root-dir ROOT ", "web db"},
		{"--root-dir=ROOT describe pod w", "web"},
		{"logs --root-dir ROOT -n kube-system ", "db"},
		{"logs --root-dir ROOT web ", "c"},
		{"exec --root-dir ROOT web -c ", "c"},
		{"get pods --root-dir ROOT -n ", "default kube-system"},
		{"why --root-dir ROOT ", "node web db"},
		{"logs --root-dir /none ", ""},
		{"logs --ta", "--tail"},
		{"--pod-man", "--pod-manifest-path"},
		{"run --netw", "--network"},
		{"run --network c", "cni"},
		{"get -o j", "json jsonpath="},
		{"images l", "load"},
	} {
		stdout, _, code := invoke(t, append([]string{cobra.ShellCompRequestCmd}, strings.Split(strings.ReplaceAll(tc.words, "ROOT", root), " ")...)...)
		words, typed := strings.Fields(tc.words), ""
		if !strings.HasSuffix(tc.words, " ") {
			typed = words[len(words)-1]
		}
		var got []string
		for line := range strings.Lines(stdout) {
			word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			if !strings.HasPrefix(word, ":") && strings.HasPrefix(word, typed) { // as the shell does
				got = append(got, word)
			}
		}
		if code != 0 || strings.Join(got, " ") != tc.want {
			t.Errorf("%q: exit %d, %q; want %q", tc.words, code, got, tc.want)
		}
	}
	if stdout, _, code := invoke(t, "completion", "fish"); code != 0 || !strings.Contains(stdout, cobra.ShellCompRequestCmd) {
		t.Errorf("exit %d\n%s", code, stdout)
	}
}
