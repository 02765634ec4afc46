package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkpoint makes the runtime write a container's memory and files to disk. Paths and status
// codes are the kubelet's: an invalid timeout is a 404. It blocks until the runtime has finished.
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) {
	container := r.PathValue("container")
	pod := s.pod(r.PathValue("namespace"), r.PathValue("pod"), "")
	if pod == nil {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return
	}
	if !hasContainer(pod, container) {
		http.Error(w, fmt.Sprintf("container %s does not exist in pod %s", container, pod.Name), http.StatusNotFound)
		return
	}
	// In seconds. The last of several values counts; 0 leaves the timeout to the runtime.
	var timeout int64
	if v := r.URL.Query()["timeout"]; len(v) > 0 {
		var err error
		if timeout, err = strconv.ParseInt(v[len(v)-1], 10, 32); err != nil {
			http.Error(w, fmt.Sprintf("timeout is %q; want a number of seconds", v[len(v)-1]), http.StatusNotFound)
			return
		}
	}
	// Read from the runtime, since the status may be outdated after a restart.
	id, ok := s.containerOf(w, r, pod)
	if !ok {
		return
	}
	// The name contains the time, so that a second checkpoint does not overwrite the first.
	path := filepath.Join(s.cfg.CheckpointDir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar",
		pod.Name, pod.Namespace, container, time.Now().Format(time.RFC3339)))
	err := s.cfg.Checkpoint.CheckpointContainer(r.Context(), &runtimeapi.CheckpointContainerRequest{
		ContainerId: id, Location: path, Timeout: timeout,
	})
	if err != nil {
		http.Error(w, fmt.Sprintf("checkpoint of container %s in pod %s/%s: %v", container, pod.Namespace, pod.Name, err), http.StatusInternalServerError)
		return
	}
	// The API returns a list, although there is one file.
	writeJSON(w, map[string][]string{"items": {path}})
}
