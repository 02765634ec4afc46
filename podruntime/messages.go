package podruntime

import (
	"bytes"
	"context"
	"maps"
	"strings"
	"unicode/utf8"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/podspec"
)

// Limits of termination messages (the API's documentation of
// terminationMessagePolicy).
const (
	maxMessage      = 4096 // the last bytes of the file
	maxLogMessage   = 2048 // bytes at the end of the log
	maxMessageLines = 80   // lines at the end of the log
)

// WithMessages returns obs, or a changed copy, with the messages of ended containers. They
// are read from files in the pod's directory podDir or, by terminationMessagePolicy, from the
// end of the container's log below Config.PodLogsDir. Containers control these files: only the
// end of a regular file is read, and no link is followed. A file system that does not answer
// within 5 s yields no messages.
func (m *Manager) WithMessages(pod *v1.Pod, podDir string, obs *observed.Pod) *observed.Pod {
	files, logs := m.messageTails(pod, podDir, obs)
	messages := m.readTails(pod, inPodDir, files)
	for i := range messages {
		// The log is only a substitute where the file has nothing.
		delete(logs, i)
	}
	maps.Copy(messages, m.readTails(pod, inLogs, logs))
	if len(messages) == 0 {
		return obs
	}
	out := copyPod(obs, pod)
	for i, msg := range messages {
		c := &out.Containers[i]
		// The runtime's own message, such as why a start failed, comes first.
		if c.Message != "" {
			msg = c.Message + ": " + msg
		}
		c.Message = msg
	}
	return out
}

// tail is a place of a termination message: the end of a file below a directory.
type tail struct {
	dir, name string
	log       bool // the file has the format of a container log
}

// messageTails returns the places of the messages of ended containers, by their index in
// obs.Containers: the message files, and the logs that are read if the file has no message.
func (m *Manager) messageTails(pod *v1.Pod, podDir string, obs *observed.Pod) (files, logs map[int]tail) {
	files, logs = map[int]tail{}, map[int]tail{}
	for i := range obs.Containers {
		o := &obs.Containers[i]
		if o.State != observed.Exited {
			continue
		}
		c, _, _, err := podspec.Find(pod, o.Name)
		if err != nil {
			continue
		}
		// Each instance has a file of its own: the message of an earlier one is not
		// mistaken for it.
		if path := podspec.TerminationMessageFile(podspec.Input{Pod: pod, PodDir: podDir}, c, o.RestartCount); path != "" {
			if name, err := below(podDir, path); err == nil {
				files[i] = tail{dir: podDir, name: name}
			}
		}
		// A container that could not run has no log of its own to fall back to.
		if c.TerminationMessagePolicy != v1.TerminationMessageFallbackToLogsOnError || o.Code() == 0 || o.Reason == "ContainerCannotRun" {
			continue
		}
		if name, err := below(m.cfg.PodLogsDir, o.LogPath); err == nil { // the runtime may say anything
			logs[i] = tail{dir: m.cfg.PodLogsDir, name: name, log: true}
		}
	}
	return files, logs
}

// readTails reads the messages at tails, and returns them by container index. All files of tails
// are in the same place. Empty messages are left out. The caller may change the map.
func (m *Manager) readTails(pod *v1.Pod, in place, tails map[int]tail) map[int]string {
	if len(tails) == 0 {
		return map[int]string{}
	}
	// One call for all files of a place: a disk that hangs costs fileTimeout
	// once, which alone ends it.
	messages, err := onDisk(context.Background(), &m.disk, pod.UID, in, func() (map[int]string, error) {
		out := map[int]string{}
		for i, t := range tails {
			if msg := t.read(); msg != "" {
				out[i] = msg
			}
		}
		return out, nil
	})
	if err != nil {
		m.cfg.Log.Warn("failed to read termination messages", zap.String("pod", podName(pod)), zap.Error(err))
		return map[int]string{}
	}
	return messages
}

// read returns the message, or "" if it cannot be read.
func (t tail) read() string {
	if !t.log {
		b, _ := fileEnd(t.dir, t.name, maxMessage)
		return validText(b)
	}
	// One line more than asked for: that may be read from its middle.
	b, whole := fileEnd(t.dir, t.name, maxLogMessage+(maxMessageLines+1)*lineHead+lineText)
	return validText(lastText(b, whole))
}

// fileEnd returns the last limit bytes of the file name below dir, or nil if it cannot be read.
// whole reports that b is the whole file.
func fileEnd(dir, name string, limit int64) (b []byte, whole bool) {
	f, err := safefile.OpenIn(dir, name)
	if err != nil {
		return nil, false
	}
	defer func() { _ = f.Close() }()
	b, whole, err = safefile.Tail(f, limit)
	if err != nil {
		return nil, false
	}
	return b, whole
}

// Sizes of the lines of a log.
const (
	lineHead = 64       // bytes, more than the runtime's prefix of a line
	lineText = 16 << 10 // where containerd splits lines (max_container_log_line_size)
)

// lastText returns the text of the last lines of a log, without the runtime's prefixes. b is the
// end of the log. Unless whole is set, b may begin within a line.
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
		// Tags of the CRI's log format, divided by colons: P is a partial line, F
		// the end of one.
		if tag, _, _ := bytes.Cut(parts[2], []byte{':'}); string(tag) == "P" {
			parts[3] = bytes.TrimSuffix(parts[3], []byte{'\n'}) // the line goes on
		}
		texts = append(texts, parts[3])
	}
	texts = texts[max(0, len(texts)-maxMessageLines):]
	all := bytes.Join(texts, nil)
	return all[max(0, len(all)-maxLogMessage):]
}

// validText returns b without an incomplete UTF-8 character at either end.
func validText(b []byte) string {
	for len(b) > 0 && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	return strings.ToValidUTF8(string(b), "")
}
