package main

import (
	"bytes"
	"strings"
	"testing"
)

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
