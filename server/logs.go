package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/crilog"
)

// logRoutes returns the log endpoint, and an answer for paths with too few elements.
func (s *Server) logRoutes() []route {
	if s.cfg.Logs == nil {
		return nil
	}
	return []route{
		{pattern: "/containerLogs/{namespace}/{pod}/{container}", methods: get, stream: true, serve: s.containerLogs},
		{pattern: "/containerLogs/", methods: get, serve: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "want /containerLogs/<namespace>/<pod>/<container>", http.StatusBadRequest)
		}},
	}
}

// containerLogs sends a container's log. The checks are in the kubelet's order, since the
// first one that fails decides the status code.
func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	o, err := parseLogOptions(r.URL.Query())
	// Without the feature gate of KEP-3288 the parameter is rejected, not ignored: the answer
	// would have more than was requested.
	if err == nil && o.stream != streamAll && !s.cfg.SplitLogStreams {
		err = fmt.Errorf("stream is %q; want All: this node does not split streams (PodLogsQuerySplitStreams)", o.stream)
	}
	if err != nil {
		http.Error(w, oneLine(err), http.StatusBadRequest)
		return
	}
	if err := o.validate(); err != nil {
		http.Error(w, oneLine(err), http.StatusUnprocessableEntity)
		return
	}
	// The path has no UID, so the newest pod with that name is meant.
	pod := s.pod(namespace, name, "")
	if pod == nil {
		http.Error(w, fmt.Sprintf("pod %q does not exist", name), http.StatusNotFound)
		return
	}
	if !hasContainer(pod, container) {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q", container, name), http.StatusNotFound)
		return
	}
	id, err := logOf(&pod.Status, name, container, o.previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.copyLog(w, r, id, o.reader(time.Now()))
}

// copyLog streams the log of the container id. It returns at the end of the log, when the
// request ends, or when the client does not read.
func (s *Server) copyLog(w http.ResponseWriter, r *http.Request, id string, o crilog.Options) {
	path, _, err := s.logFile(r.Context(), id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	rc := http.NewResponseController(w)
	out := &deadlineWriter{w: w, rc: rc}
	o.Root = s.cfg.PodLogsDir
	// With follow, a client waits for the response header even if there is no line yet.
	o.Flush = func() {
		out.extend()
		if rc.Flush() == nil { // send the header before the first line
			out.begun = true
		}
	}
	var asked time.Time
	// Called at the end of the file. It calls the runtime at most once a second. If the path has
	// changed, the log was rotated.
	o.Ended = func() bool {
		// Between calls to the runtime the log counts as open, which delays the end by up to a
		// second.
		if time.Since(asked) < time.Second {
			return false
		}
		asked = time.Now()
		now, open, err := s.logFile(r.Context(), id)
		return err != nil || !open || now != path
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	switch err := crilog.Copy(r.Context(), out, path, o); {
	case err == nil:
	case out.begun:
		panic(http.ErrAbortHandler) // otherwise the error would look like a part of the log
	default:
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// logFile returns the path of a log. It has its own deadline, since the request may follow the
// log for days.
func (s *Server) logFile(ctx context.Context, id string) (string, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	path, open, err := s.cfg.Logs.LogFile(ctx, id)
	if err == nil && path == "" {
		err = fmt.Errorf("container %s has no log file", id)
	}
	return path, open, err
}

// deadlineWriter extends the write deadline with each piece of a log, to 3*late from the write. A
// client that does not read is therefore disconnected, while the transfer of the log may take
// any time.
type deadlineWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	last  time.Time
	begun bool
}

// extend extends the write deadline, at most once a second.
func (p *deadlineWriter) extend() {
	if now := time.Now(); now.Sub(p.last) > time.Second {
		p.last = now
		_ = p.rc.SetWriteDeadline(now.Add(3 * late)) // fails in tests with a recorder
	}
}

// Write writes a piece of a log.
func (p *deadlineWriter) Write(b []byte) (int, error) {
	p.begun = true
	p.extend()
	return p.w.Write(b)
}

// logOf returns the ID of the container whose log is requested, as the runtime knows it. It comes
// from the pod's status, since only the status knows which container is the previous one.
func logOf(st *v1.PodStatus, pod, container string, previous bool) (string, error) {
	cs := statusOf(st, container)
	if cs == nil {
		return "", fmt.Errorf("container %q in pod %q is not available", container, pod)
	}
	last := ""
	if t := cs.LastTerminationState.Terminated; t != nil {
		last = t.ContainerID
	}
	id := ""
	switch {
	case previous:
		if last == "" {
			return "", fmt.Errorf("previous terminated container %q in pod %q not found", container, pod)
		}
		id = last
	// The current container takes precedence.
	case cs.State.Running != nil:
		id = cs.ContainerID
	case cs.State.Terminated != nil && cs.State.Terminated.ContainerID != "":
		id = cs.State.Terminated.ContainerID
	case cs.State.Terminated != nil || cs.LastTerminationState.Terminated != nil:
		// The new container did not start, and the previous one's log shows why.
		if last == "" {
			return "", fmt.Errorf("container %q in pod %q is terminated", container, pod)
		}
		id = last
	case cs.State.Waiting != nil:
		// The kubelet's texts, which people search for.
		why := cs.State.Waiting.Reason
		switch why {
		case "ErrImagePull":
			why = "image can't be pulled"
		case "ImagePullBackOff":
			why = "trying and failing to pull image"
		}
		return "", fmt.Errorf("container %q in pod %q is waiting to start: %s", container, pod, why)
	}
	if id == "" {
		return "", fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", container, pod)
	}
	// IDs in a status have the runtime's name as a prefix, as in containerd://0123.
	if _, own, ok := strings.Cut(id, "://"); ok {
		id = own
	}
	return id, nil
}

// statusOf returns the status of a container of any kind, or nil.
func statusOf(st *v1.PodStatus, container string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}

// oneLine joins several errors on one line.
func oneLine(err error) string {
	var list interface{ Unwrap() []error }
	if !errors.As(err, &list) {
		return err.Error()
	}
	var out []string
	for _, e := range list.Unwrap() {
		out = append(out, e.Error())
	}
	return strings.Join(out, "; ")
}
