package podruntime

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podspec"
)

func TestTerminationMessages(t *testing.T) {
	line := func(s string) string { return "2026-11-21T07:00:00.000000000Z stdout F " + s + "\n" }
	part := func(s string) string { return "2026-11-21T07:00:00.000000000Z stdout P " + s + "\n" }
	for _, tc := range []struct {
		name            string
		policy          v1.TerminationMessagePolicy
		code            int32
		reason, message string // of the runtime
		file, log       string
		want            string
	}{
		{name: "file", policy: v1.TerminationMessageReadFile, code: 1, file: "why", log: line("log"), want: "why"},
		{name: "no file", policy: v1.TerminationMessageReadFile, code: 1, log: line("log"), want: ""},
		{name: "file before log", policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, file: "why", log: line("log"), want: "why"},
		{name: "log", policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, log: line("a") + line("b"), want: "a\nb\n"},
		{name: "no log without an error", policy: v1.TerminationMessageFallbackToLogsOnError, log: line("a"), want: ""},
		{name: "no log of what never ran", policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, reason: "ContainerCannotRun", log: line("a"), want: ""},
		{name: "beside the runtime's", policy: v1.TerminationMessageReadFile, code: 1, message: "OCI", file: "why", want: "OCI: why"},
		{name: "long file", policy: v1.TerminationMessageReadFile, code: 1, file: strings.Repeat("x", 5000), want: strings.Repeat("x", 4096)},
		{name: "the end of a long file", policy: v1.TerminationMessageReadFile, code: 1, file: "first" + strings.Repeat("x", 4091) + "last", want: "t" + strings.Repeat("x", 4091) + "last"},
		{name: "a character cut in two", policy: v1.TerminationMessageReadFile, code: 1, file: "é" + strings.Repeat("x", 4095), want: strings.Repeat("x", 4095)},
		{name: "exactly as long as may be", policy: v1.TerminationMessageReadFile, code: 1, file: "a" + strings.Repeat("x", 4095), want: "a" + strings.Repeat("x", 4095)},
		{name: "file without an error", policy: v1.TerminationMessageReadFile, file: "done", want: "done"},
		{name: "file of what never ran", policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, reason: "ContainerCannotRun", message: "OCI", file: "why", want: "OCI: why"},
		{name: "log beside the runtime's", policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, message: "OCI", log: line("a"), want: "OCI: a\n"},
		{name: "nothing beside the runtime's", policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, message: "OCI", want: "OCI"},
		{name: "log of what was killed for its memory", policy: v1.TerminationMessageFallbackToLogsOnError, code: 137, reason: "OOMKilled", log: line("a"), want: "a\n"},
		{name: "no text", policy: v1.TerminationMessageReadFile, code: 1, file: "a\xffb", want: "ab"},
		{name: "80 lines", policy: v1.TerminationMessageFallbackToLogsOnError, code: 1,
			log: strings.Repeat(line("old"), 500) + strings.Repeat(line("new"), 80), want: strings.Repeat("new\n", 80)},
		{name: "a line in parts", policy: v1.TerminationMessageFallbackToLogsOnError, code: 1,
			log: line("a") + part("b1") + part("b2") + line("b3") + line("c"), want: "a\nb1b2b3\nc\n"},
		{name: "a line that was not ended", policy: v1.TerminationMessageFallbackToLogsOnError, code: 1,
			log: line("a") + strings.TrimSuffix(line("b"), "\n"), want: "a\nb"},
		{name: "one very long line", policy: v1.TerminationMessageFallbackToLogsOnError, code: 1,
			log: line(strings.Repeat("z", 100_000) + "end"), want: strings.Repeat("z", 2044) + "end\n"},
		{name: "a very long line in parts", policy: v1.TerminationMessageFallbackToLogsOnError, code: 1,
			log: strings.Repeat(part(strings.Repeat("z", 16384)), 3) + line("end"), want: strings.Repeat("z", 2044) + "end\n"},
		{name: "another file", policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, log: "no CRI log\n\n", want: ""},
		{name: "2048 bytes", policy: v1.TerminationMessageFallbackToLogsOnError, code: 1,
			log: strings.Repeat(line(strings.Repeat("y", 99)), 70), want: strings.Repeat("y", 47) + "\n" + strings.Repeat(strings.Repeat("y", 99)+"\n", 20)},
	} {
		podDir := t.TempDir()
		w := build(v1.RestartPolicyNever, nil, "c")
		c := &w.pod.Spec.Containers[0]
		c.TerminationMessagePath, c.TerminationMessagePolicy = "/dev/termination-log", tc.policy
		o := observed.Container{Name: "c", State: observed.Exited, ExitCode: &tc.code, Reason: tc.reason, Message: tc.message, RestartCount: 3}
		in := request(t, w, nil).Spec
		in.PodDir = podDir
		if tc.file != "" {
			put(t, podspec.TerminationMessageFile(in, c, o.RestartCount), tc.file)
		}
		m := manager(t, newMemory())
		if tc.log != "" {
			o.LogPath = filepath.Join(m.cfg.PodLogsDir, "3.log")
			put(t, o.LogPath, tc.log)
		}
		obs := &observed.Pod{Containers: []observed.Container{o}}
		got := m.WithMessages(w.pod, podDir, obs).Containers[0].Message
		want := tc.want
		if want == "" {
			want = tc.message
		}
		if got != want {
			t.Errorf("%s: %.60q (%d bytes), want %.60q (%d bytes)", tc.name, got, len(got), want, len(want))
		}
		if obs.Containers[0].Message != tc.message {
			t.Errorf("%s: the observation was changed", tc.name)
		}
	}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Reading the end of a log reports the same as reading all of it.
func TestLogEndAgainstTheWholeLog(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		longest := []int{3, 40, 400, 4000, lineText}[rnd.IntN(5)]
		var log strings.Builder
		var texts []string
		for range rnd.IntN(200) {
			text, tag := strings.Repeat(string(rune('a'+rnd.IntN(26))), rnd.IntN(longest+1)), "F"
			if rnd.IntN(4) == 0 {
				tag = "P"
			}
			fmt.Fprintf(&log, "2026-11-21T07:00:00.123456789+01:00 stderr %s %s\n", tag, text)
			if tag == "F" {
				text += "\n"
			}
			texts = append(texts, text)
		}
		want := strings.Join(texts[max(0, len(texts)-80):], "")
		want = want[max(0, len(want)-2048):]
		dir := t.TempDir()
		put(t, filepath.Join(dir, "0.log"), log.String())
		if got := (tail{dir, "0.log", true}).read(); got != want {
			t.Fatalf("seed %d, %d lines of up to %d: %d bytes %.80q, want %d bytes %.80q", seed, len(texts), longest, len(got), got, len(want), want)
		}
	}
}

func FuzzLastText(f *testing.F) {
	for _, s := range []string{
		"", "\n", "a", "2026-11-21T07:00:00.000000000Z stdout F hello\n", "t s P a\nt s F b\n", "t s F \n", "    \n",
		strings.Repeat("t s F \xff\xc3\n", 100), "t s P:x:y a\nt s F:x b",
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, whole bool) {
		before := string(b)
		got := lastText(b, whole)
		if len(got) > maxLogMessage || strings.Count(string(got), "\n") > maxMessageLines {
			t.Errorf("%d bytes in %d lines", len(got), strings.Count(string(got), "\n"))
		}
		if text := validText(got); !utf8.ValidString(text) {
			t.Errorf("no text: %q", text)
		}
		if string(b) != before {
			t.Error("the log was changed")
		}
	})
}
