package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/crilog"
	"github.com/nodewright/nodewright/podmeta"
)

// Listen opens a unix socket at path that only its owner can use. It replaces a socket that an
// earlier process left. It returns an error if a process still serves the socket, or if path is not
// a socket.
func Listen(path string) (net.Listener, error) {
	switch fi, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("replace socket: %w", err)
	case fi.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s exists and is not a socket (%v); want another path", path, fi.Mode())
	case served(path):
		return nil, fmt.Errorf("%s is served by another process already; want another path", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("replace socket: %w", err)
		}
	}
	cfg := net.ListenConfig{Control: ownerOnly}
	l, err := cfg.Listen(context.Background(), "unix", path)
	if errors.Is(err, syscall.EINVAL) {
		return nil, fmt.Errorf("%w: a socket's path has at most 107 bytes, this one has %d", err, len(path))
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// servedTimeout limits a connection attempt. The kernel completes it at once while a
// process listens, unless its backlog is full.
const servedTimeout = time.Second

// served reports whether a process listens at a socket.
func served(path string) bool {
	conn, err := net.DialTimeout("unix", path, servedTimeout)
	if err == nil {
		_ = conn.Close()
	}
	return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
}

// Handler returns a handler that serves the agent a. metrics, if not nil, serves
// /metrics.
func Handler(a Agent, metrics http.Handler) http.Handler {
	h := &handler{agent: a, imageSlots: make(chan struct{}, maxImageWork)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/pods", h.pods)
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}", h.withPod(h.pod))
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}/events", h.withPod(h.events))
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}/why", h.withPod(h.why))
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}/log", h.withPod(h.log))
	mux.HandleFunc("POST /v1/pods/{namespace}/{name}/exec", h.withPod(h.exec))
	mux.HandleFunc("POST /v1/pods/{namespace}/{name}/attach", h.withPod(h.attach))
	mux.HandleFunc("POST /v1/pods/{namespace}/{name}/portforward", h.withPod(h.portForward))
	mux.HandleFunc("POST /v1/pods/{namespace}/{name}/debug", h.withPod(h.debug))
	mux.HandleFunc("POST /v1/fit", h.fit)
	mux.HandleFunc("GET /v1/images", h.images)
	mux.HandleFunc("POST /v1/images/pull", h.imageWork(pullImage))
	mux.HandleFunc("POST /v1/images/load", h.imageWork(loadImages))
	mux.HandleFunc("DELETE /v1/images", h.imageWork(removeImage))
	mux.HandleFunc("GET /v1/why", h.whys)
	mux.HandleFunc("GET /v1/events", h.allEvents)
	mux.HandleFunc("GET /v1/problems", h.problems)
	mux.HandleFunc("GET /v1/history", h.history)
	mux.HandleFunc("GET /v1/node", h.node)
	mux.HandleFunc("GET /v1/node/why", h.whyNode)
	mux.HandleFunc("GET /stats/summary", h.summary)
	mux.HandleFunc("GET /healthz", h.healthz)
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		extend(http.NewResponseController(w))
		mux.ServeHTTP(w, r)
	})
}

// readerTimeout is how long a client may read nothing of an answer before its connection is
// closed. It is long for people who read a log in a pager. The time is reset with each piece of a
// log.
const readerTimeout = 10 * time.Minute

// extend restarts the client's time limit.
func extend(rc *http.ResponseController) {
	_ = rc.SetWriteDeadline(time.Now().Add(readerTimeout)) // a recorder has none
}

type handler struct {
	agent      Agent
	imageSlots chan struct{}
}

func (h *handler) pods(w http.ResponseWriter, _ *http.Request) {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{}}
	for _, p := range h.agent.Pods() {
		list.Items = append(list.Items, *withKind(p))
	}
	reply(w, list)
}

// podType is the type of a Pod object.
var podType = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}

func withKind(p *v1.Pod) *v1.Pod {
	p.TypeMeta = podType
	return p
}

// withPod calls next with the pod that the path names. If an older pod of the same name is still
// being deleted, next gets the newer pod.
func (h *handler) withPod(next func(http.ResponseWriter, *http.Request, *v1.Pod)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.PathValue("namespace"), r.PathValue("name")
		var found *v1.Pod
		for _, p := range h.agent.Pods() {
			if p.Namespace == namespace && p.Name == name && (found == nil || !podmeta.Newer(found, p)) {
				found = p
			}
		}
		if found == nil {
			say(w, http.StatusNotFound, fmt.Errorf("pod %s/%s not found", namespace, name))
			return
		}
		next(w, r, found)
	}
}

func (h *handler) pod(w http.ResponseWriter, _ *http.Request, pod *v1.Pod) { reply(w, withKind(pod)) }

func (h *handler) events(w http.ResponseWriter, _ *http.Request, pod *v1.Pod) {
	list := v1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}, Items: h.agent.Events(pod)}
	if list.Items == nil {
		list.Items = []v1.Event{}
	}
	reply(w, list)
}

func (h *handler) why(w http.ResponseWriter, _ *http.Request, pod *v1.Pod) {
	reply(w, h.agent.Why(pod))
}

// whys answers with the explanations of all pods.
func (h *handler) whys(w http.ResponseWriter, _ *http.Request) {
	all := []Why{}
	for _, p := range h.agent.Pods() {
		all = append(all, h.agent.Why(p))
	}
	reply(w, all)
}

// allEvents answers with the events of all pods and of the node, or with the events of a namespace
// or a name.
func (h *handler) allEvents(w http.ResponseWriter, r *http.Request) {
	list := v1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}, Items: []v1.Event{}}
	namespace, name := r.URL.Query().Get("namespace"), r.URL.Query().Get("name")
	for _, e := range h.agent.AllEvents() {
		if o := &e.InvolvedObject; (namespace == "" || o.Namespace == namespace) && (name == "" || o.Name == name) {
			list.Items = append(list.Items, e)
		}
	}
	reply(w, list)
}

func (h *handler) log(w http.ResponseWriter, r *http.Request, pod *v1.Pod) {
	opts, err := parseLogOptions(r.URL.Query())
	if err != nil {
		say(w, http.StatusBadRequest, err)
		return
	}
	if opts.Container == "" && len(pod.Spec.Containers) > 0 {
		opts.Container = pod.Spec.Containers[0].Name
	}
	rc := http.NewResponseController(w)
	out := &counted{w: w, rc: rc}
	flush := func() {
		extend(rc)
		out.begun = rc.Flush() == nil || out.begun
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	copied := crilog.Options{Tail: opts.Tail, Since: opts.Since, Timestamps: opts.Timestamps, Follow: opts.Follow, Flush: flush}
	switch err := CopyLog(r.Context(), h.agent, pod, opts.Container, opts.Previous, out, copied); {
	case err == nil:
	case out.begun:
		panic(http.ErrAbortHandler) // otherwise the error would look like a part of the log
	default:
		fail(w, err)
	}
}

// CopyLog writes the log of a container's newest instance, or of the previous one, to w. With
// o.Follow it continues until the instance has ended and its log has been copied, or until ctx
// ends. CopyLog sets o.Ended and o.Root itself. The error is an [ErrNotFound] if there is no such
// instance, or the runtime has no log file of it.
func CopyLog(ctx context.Context, a Agent, pod *v1.Pod, container string, previous bool, w io.Writer, o crilog.Options) error {
	path, err := a.LogPath(pod, container, previous)
	if err != nil {
		return err
	}
	o.Ended = func() bool {
		now, err := a.LogPath(pod, container, previous)
		return err != nil || now != path || !running(a, pod, container)
	}
	if k, ok := a.(LogKeeper); ok {
		o.Root = k.LogsDir()
	}
	return crilog.Copy(ctx, w, path, o)
}

// counted is a ResponseWriter that records whether the response has begun, and restarts the
// client's time limit at each write.
type counted struct {
	w     io.Writer
	rc    *http.ResponseController
	begun bool
}

func (c *counted) Write(p []byte) (int, error) {
	c.begun = true
	extend(c.rc)
	return c.w.Write(p)
}

// running reports whether a container of the pod runs, according to the pod's newest status.
func running(a Agent, pod *v1.Pod, container string) bool {
	for _, p := range a.Pods() {
		if p.UID != pod.UID {
			continue
		}
		for _, list := range [][]v1.ContainerStatus{
			p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses,
		} {
			for i := range list {
				if list[i].Name == container {
					return list[i].State.Running != nil
				}
			}
		}
	}
	return false
}

var logParameters = []string{"container", "previous", "follow", "timestamps", "tail", "since"}

func parseLogOptions(q url.Values) (LogOptions, error) {
	opts := LogOptions{Container: q.Get("container"), Tail: -1}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(logParameters, name) {
			errs = append(errs, fmt.Errorf("%s=%q: want one of %s", name, q.Get(name), strings.Join(logParameters, ", ")))
		}
	}
	for _, flag := range []struct {
		name string
		dst  *bool
	}{{"previous", &opts.Previous}, {"follow", &opts.Follow}, {"timestamps", &opts.Timestamps}} {
		if v := q.Get(flag.name); v != "" {
			b, err := strconv.ParseBool(v)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s=%q: want true or false", flag.name, v))
			}
			*flag.dst = b
		}
	}
	if v := q.Get("tail"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			errs = append(errs, fmt.Errorf("tail=%q: want a number of lines", v))
		}
		opts.Tail = n
	}
	if v := q.Get("since"); v != "" {
		at, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			errs = append(errs, fmt.Errorf("since is %q; want a time such as 2026-01-02T15:04:05Z (RFC 3339)", v))
		}
		opts.Since = at
	}
	return opts, errors.Join(errs...)
}

// decode decodes a request about a container into the value into. If that fails, it answers with an
// error and returns false.
func decode(w http.ResponseWriter, r *http.Request, what string, into any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err != nil {
		say(w, http.StatusBadRequest, fmt.Errorf("%s request: %w", what, err))
	}
	return err == nil
}

// streamer returns the agent as a Streamer, or answers with an error if it is not one.
func (h *handler) streamer(w http.ResponseWriter) (Streamer, bool) {
	s, ok := h.agent.(Streamer)
	if !ok {
		say(w, http.StatusNotImplemented, errors.New("this agent has no exec, attach or port forwarding"))
	}
	return s, ok
}

func (h *handler) attach(w http.ResponseWriter, r *http.Request, pod *v1.Pod) {
	s, ok := h.streamer(w)
	var req AttachRequest
	if !ok || !decode(w, r, "attach", &req) {
		return
	}
	if req.Container == "" && len(pod.Spec.Containers) > 0 {
		req.Container = pod.Spec.Containers[0].Name
	}
	a, err := s.Attach(r.Context(), pod, req)
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, a)
}

func (h *handler) portForward(w http.ResponseWriter, r *http.Request, pod *v1.Pod) {
	s, ok := h.streamer(w)
	if !ok {
		return
	}
	u, err := s.PortForward(r.Context(), pod)
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, ExecReply{URL: u})
}

func (h *handler) exec(w http.ResponseWriter, r *http.Request, pod *v1.Pod) {
	var req ExecRequest
	if !decode(w, r, "exec", &req) {
		return
	}
	if len(req.Command) == 0 {
		say(w, http.StatusBadRequest, errors.New("exec request: command is empty; want a program and its arguments"))
		return
	}
	if req.Container == "" && len(pod.Spec.Containers) > 0 {
		req.Container = pod.Spec.Containers[0].Name
	}
	u, err := h.agent.Exec(r.Context(), pod, req)
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, ExecReply{URL: u})
}

func (h *handler) problems(w http.ResponseWriter, _ *http.Request) {
	p := h.agent.Problems()
	if p == nil {
		p = []Problem{}
	}
	reply(w, p)
}

func (h *handler) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := h.agent.Healthy(); err != nil {
		say(w, http.StatusServiceUnavailable, err)
		return
	}
	_, _ = w.Write([]byte("ok"))
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // if this fails, the caller has gone
}

func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, fs.ErrNotExist):
		code = http.StatusNotFound
	case errors.Is(err, ErrInvalid):
		code = http.StatusBadRequest
	case errors.Is(err, errors.ErrUnsupported): // the node lacks the part that would answer
		code = http.StatusNotImplemented
	}
	say(w, code, err)
}

// say answers with an error as one line of text.
func say(w http.ResponseWriter, code int, err error) {
	http.Error(w, strings.ReplaceAll(err.Error(), "\n", "; "), code)
}
