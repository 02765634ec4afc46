package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestImagesWords(t *testing.T) {
	for args, want := range map[string]string{
		"images ls":             `images "ls": want load, pull or rm, or nothing for a list`,
		"images pull":           "which? Give at least one IMAGE",
		"images load":           "which? Give at least one FILE",
		"images load /none.tar": "/none.tar: no such file",
		"images -o yaml":        `-o "yaml": want json, and no verb`,
		"images -o json rm a":   `-o "json": want json, and no verb`,
		"images --name n pull":  `--name "n": want the verb load beside it`,
		"images --force pull a": "--force: want the verb rm beside it",
		"images pull a b":       "no agent answers at /none/agent.sock",
	} {
		var out, msg bytes.Buffer
		code := execute(t.Context(), stdio{in: strings.NewReader(""), out: &out, err: &msg}, append([]string{"--root-dir", "/none"}, strings.Fields(args)...))
		if code != 1 || !strings.Contains(msg.String(), want) {
			t.Errorf("%s: %d, %q; want %q", args, code, msg.String(), want)
		}
	}
}
