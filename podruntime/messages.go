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
	maxMessage      = 4096 // bytes of the file, the last
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
		if b, _ := fileEnd(path, maxMessage); len(b) > 0 {
			return validText(b)
		}
	}
	if c.TerminationMessagePolicy != v1.TerminationMessageFallbackToLogsOnError ||
		o.ExitCode == 0 || o.Reason == "ContainerCannotRun" || o.LogPath == "" {
		return ""
	}
	return logEnd(o.LogPath)
}

// fileEnd reads the last limit bytes of a file, of which nothing can be read if
// it is not there; whole tells that there are no others.
func fileEnd(path string, limit int64) (b []byte, whole bool) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	defer func() { _ = f.Close() }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, false
	}
	b, err = io.ReadAll(io.NewSectionReader(f, max(0, size-limit), limit))
	if err != nil {
		return nil, false
	}
	return b, size <= limit
}

// Sizes of the lines of a log.
const (
	lineHead = 64       // more than the runtime puts before each
	lineText = 16 << 10 // where containerd splits lines (max_container_log_line_size)
)

// logEnd is the end of a CRI log, without what the runtime put before each
// line.
func logEnd(path string) string {
	// One line more than asked for: that may be read from its middle.
	b, whole := fileEnd(path, maxLogMessage+(maxMessageLines+1)*lineHead+lineText)
	return validText(lastText(b, whole))
}

// lastText takes the text out of a log's end. If it is not the whole log, it
// may begin within a line.
func lastText(b []byte, whole bool) []byte {
	var texts [][]byte
	if !whole {
		// The line that it begins in is longer than containerd makes them, and
		// what is left of it is needed only if little follows.
		first := b
		if end := bytes.IndexByte(b, '\n'); end >= 0 {
			first = b[:end+1]
		}
		b = b[len(first):]
		texts = append(texts, first[min(len(first), lineHead):])
	}
	for line := range bytes.Lines(b) {
		parts := bytes.SplitN(line, []byte{' '}, 4) // time, stream, tags, text
		if len(parts) < 4 {
			continue
		}
		if tag, _, _ := bytes.Cut(parts[2], []byte{':'}); string(tag) == "P" {
			parts[3] = bytes.TrimSuffix(parts[3], []byte{'\n'}) // the line goes on
		}
		texts = append(texts, parts[3])
	}
	texts = texts[max(0, len(texts)-maxMessageLines):]
	all := bytes.Join(texts, nil)
	return all[max(0, len(all)-maxLogMessage):]
}

// validText drops what a cut left of a character at either end.
func validText(b []byte) string {
	for len(b) > 0 && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	return strings.ToValidUTF8(string(b), "")
}
