package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Listen opens a unix socket at path for its owner alone, in place of one
// that an earlier process left there. Whoever calls must know that no other
// agent serves it (the root directory's lock says so).
func Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replace socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// Handler serves a over HTTP. metrics may be nil.
func Handler(a Agent, metrics http.Handler) http.Handler {
	h := &handler{agent: a}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/pods", h.pods)
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}", h.withPod(h.pod))
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}/events", h.withPod(h.events))
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}/why", h.withPod(h.why))
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}/log", h.withPod(h.log))
	mux.HandleFunc("POST /v1/pods/{namespace}/{name}/exec", h.withPod(h.exec))
	mux.HandleFunc("GET /v1/problems", h.problems)
	mux.HandleFunc("GET /healthz", h.healthz)
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	return mux
}

type handler struct{ agent Agent }

func (h *handler) pods(w http.ResponseWriter, _ *http.Request) {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for _, p := range h.agent.Pods() {
		list.Items = append(list.Items, *withKind(p))
	}
	reply(w, list)
}

func withKind(p *v1.Pod) *v1.Pod {
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	return p
}

// withPod finds the pod that the path names. Of several with one name, the
// last one is meant: it is the newest.
func (h *handler) withPod(next func(http.ResponseWriter, *http.Request, *v1.Pod)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.PathValue("namespace"), r.PathValue("name")
		var found *v1.Pod
		for _, p := range h.agent.Pods() {
			if p.Namespace == namespace && p.Name == name {
				found = p
			}
		}
		if found == nil {
			http.Error(w, fmt.Sprintf("pod %s/%s not found", namespace, name), http.StatusNotFound)
			return
		}
		next(w, r, found)
	}
}

func (h *handler) pod(w http.ResponseWriter, _ *http.Request, pod *v1.Pod) { reply(w, withKind(pod)) }

func (h *handler) events(w http.ResponseWriter, _ *http.Request, pod *v1.Pod) {
	reply(w, v1.EventList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"},
		Items:    h.agent.Events(pod),
	})
}

func (h *handler) why(w http.ResponseWriter, _ *http.Request, pod *v1.Pod) {
	reply(w, h.agent.Why(pod))
}

func (h *handler) log(w http.ResponseWriter, r *http.Request, pod *v1.Pod) {
	opts, err := parseLogOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if opts.Container == "" && len(pod.Spec.Containers) > 0 {
		opts.Container = pod.Spec.Containers[0].Name
	}
	path, err := h.agent.LogPath(pod, opts.Container, opts.Previous)
	if err != nil {
		fail(w, err)
		return
	}
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	ended := func() bool {
		now, err := h.agent.LogPath(pod, opts.Container, opts.Previous)
		return err != nil || now != path || !running(h.agent, pod, opts.Container)
	}
	if err := copyLog(r.Context(), w, func() { _ = rc.Flush() }, path, opts, ended); err != nil {
		fail(w, err)
	}
}

// running tells whether a container of the pod runs by its newest status.
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

func parseLogOptions(q url.Values) (LogOptions, error) {
	opts := LogOptions{Container: q.Get("container"), Tail: -1}
	var errs []error
	for name, dst := range map[string]*bool{
		"previous": &opts.Previous, "follow": &opts.Follow, "timestamps": &opts.Timestamps,
	} {
		if v := q.Get(name); v != "" {
			b, err := strconv.ParseBool(v)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s=%q: want true or false", name, v))
			}
			*dst = b
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
			errs = append(errs, fmt.Errorf("since=%q: want a time as RFC 3339 has it", v))
		}
		opts.Since = at
	}
	return opts, errors.Join(errs...)
}

func (h *handler) exec(w http.ResponseWriter, r *http.Request, pod *v1.Pod) {
	var req ExecRequest
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		http.Error(w, "exec request: "+err.Error(), http.StatusBadRequest)
		return
	}
	if len(req.Command) == 0 {
		http.Error(w, "exec request: command is empty; want a program and its arguments", http.StatusBadRequest)
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
		http.Error(w, strings.ReplaceAll(err.Error(), "\n", "; "), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok"))
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the caller has gone if this fails
}

func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if errors.Is(err, ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = http.StatusNotFound
	}
	http.Error(w, err.Error(), code)
}
