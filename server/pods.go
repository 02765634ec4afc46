package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// pods sends the desired pods.
func (s *Server) pods(w http.ResponseWriter, _ *http.Request) {
	writePods(w, s.cfg.Pods.Pods())
}

// runningPods sends the runtime's running pods.
func (s *Server) runningPods(w http.ResponseWriter, r *http.Request) {
	pods, err := s.cfg.Running.RunningPods(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writePods(w, pods)
}

// writePods sends a PodList pod by pod, so that it needs the memory for one pod only.
func writePods(w http.ResponseWriter, pods []*v1.Pod) {
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(w, 16<<10)
	err := encodePods(out, pods)
	if err == nil {
		// A short list is sent in one piece.
		err = out.Flush()
	}
	if err != nil {
		panic(http.ErrAbortHandler) // otherwise an incomplete list would look complete
	}
}

// encodePods writes the list as a v1.PodList.
func encodePods(out io.Writer, pods []*v1.Pod) error {
	if _, err := io.WriteString(out, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`); err != nil {
		return err
	}
	// Written field by field, in the order of encoding/json, so that the shared pods are not
	// copied.
	enc := json.NewEncoder(out)
	for i, p := range pods {
		if i > 0 {
			if _, err := io.WriteString(out, ","); err != nil {
				return err
			}
		}
		if err := enc.Encode(p); err != nil {
			return fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
		}
	}
	_, err := io.WriteString(out, "]}\n")
	return err
}

// pod returns the pod that a path names. If uid is "", it returns the newest pod with that name.
// If no pod has the UID, it returns a pod with that name: the callers compare the UIDs, and name
// the requested one in their 404 answer.
func (s *Server) pod(namespace, name string, uid types.UID) *v1.Pod {
	var found *v1.Pod
	for _, p := range s.cfg.Pods.Pods() {
		switch {
		case p.Namespace != namespace || p.Name != name:
		case uid != "" && p.UID == uid:
			return p
		case found == nil || !podmeta.Newer(found, p):
			found = p
		}
	}
	return found
}

// hasContainer reports whether a pod has a container of any kind with that name.
func hasContainer(pod *v1.Pod, name string) bool {
	_, ok := terminalOf(pod, name)
	return ok
}

// terminalOf reports whether a pod's container has a terminal. ok is false if there
// is no such container.
func terminalOf(pod *v1.Pod, name string) (tty, ok bool) {
	// Names are unique over all kinds of containers of a pod.
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return list[i].TTY, true
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
			return c.TTY, true
		}
	}
	return false, false
}
