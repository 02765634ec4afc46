package podruntime

import (
	"bytes"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podspec"
)

// Limits of termination messages (the API's documentation of
// terminationMessagePolicy).
const (
	maxMessage      = 4096 // bytes of the file
	maxLogMessage   = 2048 // bytes of the log
	maxMessageLines = 80   // of the log
)

// WithMessages returns obs with the termination messages of its ended
// containers, which are in files of the pod's directory podDir or, if the spec
// says so, at the end of their logs. obs itself is not changed.
func (m *Manager) WithMessages(pod *v1.Pod, podDir string, obs *observed.Pod) *observed.Pod {
	out := obs
	for i := range obs.Containers {
		o := &obs.Containers[i]
		if o.State != observed.Exited {
			continue
		}
		c, _, _, err := podspec.Find(pod, o.Name)
		if err != nil {
			continue
		}
		msg := terminationMessage(podspec.Input{Pod: pod, PodDir: podDir}, c, o)
		if msg == "" {
			continue
		}
		if out == obs {
			out = copyPod(obs, pod)
		}
		if o.Message != "" {
			msg = o.Message + ": " + msg
		}
		out.Containers[i].Message = msg
	}
	return out
}

// terminationMessage reads what a container left to say.
func terminationMessage(in podspec.Input, c *v1.Container, o *observed.Container) string {
	if path := podspec.TerminationMessageFile(in, c, o.RestartCount); path != "" {
		if f, err := os.Open(path); err == nil {
			b, _ := io.ReadAll(io.LimitReader(f, maxMessage))
			_ = f.Close()
			if len(b) > 0 {
				return validText(b)
			}
		}
	}
	if c.TerminationMessagePolicy != v1.TerminationMessageFallbackToLogsOnError ||
		o.ExitCode == 0 || o.Reason == "ContainerCannotRun" || o.LogPath == "" {
		return ""
	}
	return logEnd(o.LogPath)
}

// logEnd is the end of a CRI log, without what the runtime put before each
// line.
func logEnd(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	// The runtime's own part of a line is shorter than this.
	const overhead = 64
	want := int64(maxLogMessage + maxMessageLines*overhead)
	start := max(0, size-want)
	b := make([]byte, size-start)
	if _, err := f.ReadAt(b, start); err != nil {
		return ""
	}
	if start > 0 {
		_, b, _ = bytes.Cut(b, []byte{'\n'})
	}
	var text []string
	for line := range bytes.Lines(b) {
		if parts := bytes.SplitN(line, []byte{' '}, 4); len(parts) == 4 {
			text = append(text, string(parts[3]))
		}
	}
	if n := len(text) - maxMessageLines; n > 0 {
		text = text[n:]
	}
	all := []byte(strings.Join(text, ""))
	if n := len(all) - maxLogMessage; n > 0 {
		all = all[n:]
	}
	return validText(all)
}

// validText drops what a cut left of a character at either end.
func validText(b []byte) string {
	for len(b) > 0 && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	return strings.ToValidUTF8(string(b), "")
}
